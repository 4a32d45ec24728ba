"""Parallel coordinates: one line a config trained to its end, through all its parameters to its value.

Drawn as plain lines, not as plotly's `parcoords`: those need WebGL, and have no place for a parameter that a
config does not have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cbe.report.configs import Row, counts
from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.numbers import METRICS, number
from cbe.report.page.panel import FAINT, Panel, escape, shown
from cbe.spec import Parameter
from cbe.store.history import is_in_space

MOST = 200  # lines
SHADES = 5
_SHARES = (0.4, 0.7, 0.85, 0.95)  # where one shade ends: few are to stand out
_ABSENT = -0.14
_FEWEST = 3


def parallel(evidence: Evidence) -> Panel | None:
    found = [row for row in evidence.search if counts(row) and is_in_space(evidence.study, point_of(row))]
    keys = [key for key in evidence.study.search if any(key in point_of(row) for row in found)]
    if len(found) < _FEWEST or not keys:
        return None
    sign = 1 if evidence.objective.direction == "minimize" else -1
    found.sort(key=lambda row: (-sign * row["objective"], row["trial"]))  # the best is drawn last, on top
    every = -(-len(found) // MOST)
    rows = list(reversed(found[::-1][::every]))
    values = [row["objective"] for row in found]
    span = (min(values), max(values)) if min(values) < max(values) else (values[0] - 1, values[0] + 1)
    shades: list[list[Row]] = [[] for _ in range(SHADES)]
    for place, row in enumerate(rows, start=1):
        shades[sum(place / len(rows) > share for share in _SHARES)].append(row)
    data = [
        _lines(evidence, keys, shade, span, number) for number, shade in enumerate(shades, start=1) if shade
    ]
    note = (
        "One line a trial of the search trained to its end; the better its value, the stronger its line. "
        "A line through “absent” has no such parameter."
    )
    absent = any(key not in point_of(row) for row in rows for key in keys)
    note = note if absent else note.partition(" A line through")[0]
    note += f" {len(rows):,} of {len(found):,} are drawn." if every > 1 else ""
    layout = _layout(evidence, keys, span, absent)
    return Panel("parallel", "All parameters together", note, {"data": data, "layout": layout})


def _height(parameter: Parameter, value: Any) -> float:
    """Where on its axis a value stands, from 0 to 1."""
    if parameter.choice is not None:
        names = [shown(choice) for choice in parameter.choice]
        place = names.index(shown(value)) if shown(value) in names else 0
        return (place + 0.5) / len(names)
    low, high, at = parameter.low, parameter.high, float(value)
    if parameter.log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    return min(1.0, max(0.0, (at - low) / (high - low)))


def _lines(
    evidence: Evidence, keys: Sequence[str], rows: Sequence[Row], span: tuple[float, float], shade: int
) -> dict[str, Any]:
    x: list[Any] = []
    y: list[Any] = []
    texts: list[str] = []
    names: list[str] = []
    metric = evidence.objective.metric
    for row in rows:
        point = point_of(row)
        x += [*range(len(keys) + 1), None]
        y += [
            round(_height(evidence.study.search[key], point[key]), 4) if key in point else _ABSENT
            for key in keys
        ]
        y += [round((row["objective"] - span[0]) / (span[1] - span[0]), 4), None]
        texts += [f"{escape(key)}: {escape(shown(point[key])) if key in point else 'absent'}" for key in keys]
        texts += [f"{METRICS[metric].title}: {number(metric, row['objective'])} {METRICS[metric].unit}", ""]
        names += [row["trial"]] * (len(keys) + 2)
    colour = f"var(--shade-{shade})"
    return {
        **{"type": "scatter", "mode": "lines+markers", "x": x, "y": y, "text": texts, "customdata": names},
        "hovertemplate": "<b>%{customdata}</b><br>%{text}<extra></extra>",
        "line": {"width": 1 if shade < SHADES else 2, "color": colour, "shape": "linear"},
        "marker": {"size": 4, "color": colour},
    }


def _layout(
    evidence: Evidence, keys: Sequence[str], span: tuple[float, float], absent: bool
) -> dict[str, Any]:
    metric = evidence.objective.metric
    times = Counter(key.rpartition(".")[2] for key in keys)
    short = [last if times[last := key.rpartition(".")[2]] == 1 else key for key in keys]
    labels = [label for place, key in enumerate(keys) for label in _labels(place, evidence.study.search[key])]
    ends: Mapping[float, str] = {0.0: number(metric, span[0]), 1.0: number(metric, span[1])}
    unit = METRICS[metric].unit
    labels += [_label(len(keys), height, f"{text} {unit}") for height, text in ends.items()]
    labels += [_label(0, _ABSENT, "absent")] if absent else []
    axis = {"type": "line", "y0": 0, "y1": 1, "layer": "below", "line": {"color": FAINT, "width": 1}}
    return {
        **{"height": 440, "showlegend": False, "hovermode": "closest", "annotations": labels},
        "shapes": [{**axis, "x0": place, "x1": place} for place in range(len(keys) + 1)],
        "xaxis": {
            **{
                "tickvals": list(range(len(keys) + 1)),
                "ticktext": [*map(escape, short), METRICS[metric].title],
            },
            **{"side": "top", "showgrid": False, "zeroline": False, "range": [-0.45, len(keys) + 0.45]},
            "automargin": True,
        },
        "yaxis": {"visible": False, "range": [_ABSENT - 0.05 if absent else -0.08, 1.08]},
        "meta": {"least": 96 * (len(keys) + 1)},
    }


def _labels(place: int, parameter: Parameter) -> list[dict[str, Any]]:
    if parameter.choice is not None:
        return [_label(place, _height(parameter, choice), shown(choice)) for choice in parameter.choice]
    ends = ((0.0, parameter.low), (1.0, parameter.high))
    return [_label(place, height, shown(value)) for height, value in ends]


def _label(place: int, height: float, text: str) -> dict[str, Any]:
    about = {"showarrow": False, "xanchor": "left", "xshift": 5, "font": {"size": 11}}
    return {"x": place, "y": height, "text": escape(text), "bgcolor": "var(--veil)", **about}
