"""Parallel coordinates: one line a config trained to its end, through all its parameters to its value.

Drawn as plain lines, not as plotly's `parcoords`: those need WebGL, and have no place for a parameter that a
config does not have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cbe.configs import counts
from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.panel import FAINT, MARKS, Panel, escape, shown
from cbe.spec import Parameter
from cbe.spec.metrics import METRICS
from cbe.store.history import is_in_space
from cbe.store.rows import Row
from cbe.words import number

MAX_LINES = 200  # lines
SHADES = 5
_SHARES = (0.4, 0.7, 0.85, 0.95)  # where one shade ends: few are to stand out
_STRONGEST = f"var(--shade-{SHADES})"
_CHOSEN = {
    "line": {"width": 3, "color": _STRONGEST, "shape": "linear"},
    "marker": {"size": 8, "color": _STRONGEST, "symbol": MARKS["chosen"]},
}
_ABSENT = -0.14
_FEWEST = 3


def parallel(evidence: Evidence) -> Panel | None:
    found = [row for row in evidence.search if counts(row) and is_in_space(evidence.study, point_of(row))]
    keys = [key for key in evidence.study.search if any(key in point_of(row) for row in found)]
    if len(found) < _FEWEST or not keys:
        return None
    merits = _merits(found, evidence.objective.direction)
    shades = {trial: 1 + sum(merit > share for share in _SHARES) for trial, merit in merits.items()}
    found.sort(key=lambda row: (merits[row["trial"]], row["trial"]))  # the best are drawn last, on top
    every = -(-len(found) // MAX_LINES)
    last = len(found) - 1
    rows = [row for at, row in enumerate(found) if (last - at) % every == 0 or evidence.part(row) == "chosen"]
    values = [row["objective"] for row in found]
    span = (min(values), max(values)) if min(values) < max(values) else (values[0] - 1, values[0] + 1)
    chosen = [row for row in rows if evidence.part(row) == "chosen"]
    others = [row for row in rows if evidence.part(row) != "chosen"]
    data = [
        _lines(evidence, keys, group, span) | _shaded(shade)
        for shade in range(1, SHADES + 1)
        if (group := [row for row in others if shades[row["trial"]] == shade])
    ]
    data += [_lines(evidence, keys, chosen, span) | _CHOSEN] if chosen else []
    note = "Each line is a completed trial of the search; the better its value, the stronger its line."
    note += " Thick, with diamonds: the best searched config." if chosen else ""
    absent = any(key not in point_of(row) for row in rows for key in keys)
    note += " A line through “absent” has no such parameter." if absent else ""
    note += f" {len(rows):,} of {len(found):,} are drawn." if every > 1 else ""
    layout = _layout(evidence, keys, span, absent)
    return Panel("parallel", "All parameters together", note, {"data": data, "layout": layout})


def _merits(rows: Sequence[Row], direction: str) -> dict[str, float]:
    """Of every trial the share of trials that are not better: equal values are equally good."""
    sign = -1 if direction == "minimize" else 1
    values = sorted(sign * row["objective"] for row in rows)
    return {row["trial"]: bisect_right(values, sign * row["objective"]) / len(rows) for row in rows}


def _shaded(shade: int) -> dict[str, Any]:
    colour = f"var(--shade-{shade})"
    line = {"width": 1 if shade < SHADES else 2, "color": colour, "shape": "linear"}
    return {"line": line, "marker": {"size": 4, "color": colour}}


def _height(parameter: Parameter, value: Any) -> float:
    """Where on its axis a value stands, from 0 to 1."""
    if parameter.scale == "category":
        return parameter.to_unit(value)
    low, *_, high = map(parameter.to_unit, parameter.listed)
    return (parameter.to_unit(value) - low) / (high - low)


def _lines(
    evidence: Evidence, keys: Sequence[str], rows: Sequence[Row], span: tuple[float, float]
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
        said = [f"{escape(key)}: {escape(shown(point[key])) if key in point else 'absent'}" for key in keys]
        said += [f"{METRICS[metric].title}: {number(metric, row['objective'])} {METRICS[metric].unit.sign}"]
        texts += [*(f"<b>{escape(row['trial'])}</b><br>{each}" for each in said), ""]
        names += [row["trial"]] * (len(keys) + 2)
    return {
        **{"type": "scatter", "mode": "lines+markers", "x": x, "y": y, "text": texts, "customdata": names},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _layout(
    evidence: Evidence, keys: Sequence[str], span: tuple[float, float], absent: bool
) -> dict[str, Any]:
    metric = evidence.objective.metric
    times = Counter(key.rpartition(".")[2] for key in keys)
    short = [last if times[last := key.rpartition(".")[2]] == 1 else key for key in keys]
    labels = [label for place, key in enumerate(keys) for label in _labels(place, evidence.study.search[key])]
    ends: Mapping[float, str] = {0.0: number(metric, span[0]), 1.0: number(metric, span[1])}
    unit = METRICS[metric].unit.sign
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
    return [_label(place, _height(parameter, value), shown(value)) for value in parameter.listed]


def _label(place: int, height: float, text: str) -> dict[str, Any]:
    about = {"showarrow": False, "xanchor": "left", "xshift": 5, "font": {"size": 11}}
    return {"x": place, "y": height, "text": escape(text), "bgcolor": "var(--veil)", **about}
