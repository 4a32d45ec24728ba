"""The search as it went: what each trial ended at, and the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cbe.configs import counts, is_finite
from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import ACCENT, COLOURS, MARKS, MUTED, NAMES, Panel, legend, scaled, value_axis
from cbe.report.page.panels.hover import about
from cbe.spec.metrics import METRICS
from cbe.store.rows import Row
from cbe.words import plural

_MANY = 500  # trials: of more, marks are small


def history(evidence: Evidence) -> Panel | None:
    ended = [row for row in evidence.search if row["state"] not in ("running", "paused")]
    ended.sort(key=lambda row: (row["updated"] is None, row["updated"], row["trial"]))
    places = {row["trial"]: place for place, row in enumerate(ended, start=1)}
    valued = [row for row in ended if is_finite(row["objective"])]
    if not valued:
        return None
    lost = [row for row in ended if not is_finite(row["objective"])]
    traces = [_marks(evidence, group, name, places) for name, group in _groups(evidence, valued).items()]
    if (line := _best_so_far(evidence, valued, places)) is not None:
        traces.insert(0, line)
    if lost:
        traces.append(_lost(evidence, lost, places))
    stopped = sum(row["state"] == "pruned" for row in ended)
    note = "Filled: completed. Hollow: ended early (pruned, interrupted or failed), at its last evaluation. "
    note += f"The scheduler pruned {plural(stopped, 'trial')} of {len(ended):,}."
    if lost:
        note += f" × at the bottom: {plural(len(lost), 'trial')} without a value."
    if running := evidence.counts["running"]:
        note += f" {plural(running, 'trial')} still running: not shown."
    if paused := evidence.counts["paused"]:
        note += f" {plural(paused, 'trial')} paused: not shown."
    layout = {
        "height": 420,
        "xaxis": {
            **{"title": {"text": "trials, in the order they ended"}, "range": [0.3, len(ended) + 0.7]},
            **({"dtick": 1} if len(ended) <= 15 else {}),
        },
        "yaxis": value_axis(evidence.objective.metric),
        "yaxis2": {"overlaying": "y", "visible": False, "range": [0, 1], "fixedrange": True},
        "legend": legend(),
        "hovermode": "closest",
    }
    return Panel("history", "Search history", note, {"data": traces, "layout": layout})


def _groups(evidence: Evidence, rows: Sequence[Row]) -> dict[tuple[str, bool], list[Row]]:
    groups: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        key = (evidence.part(row) or row["preset"] or "searched", row["state"] == "completed")
        groups.setdefault(key, []).append(row)
    order = ("searched", "base", "paper", "chosen")
    return dict(sorted(groups.items(), key=lambda item: (order.index(item[0][0]), not item[0][1])))


def _marks(
    evidence: Evidence, rows: Sequence[Row], group: tuple[str, bool], places: dict[str, int]
) -> dict[str, Any]:
    part, whole = group
    colour, symbol = COLOURS.get(part, MUTED), MARKS.get(part, "circle")
    name = NAMES.get(part, part)
    unit = METRICS[evidence.objective.metric].unit.sign
    return {
        **{"type": "scatter", "mode": "markers", "cliponaxis": False},
        "name": name if whole else f"{name}, ended early",
        **{"x": [places[row["trial"]] for row in rows], "customdata": [row["trial"] for row in rows]},
        "y": scaled(evidence.objective.metric, [row["objective"] for row in rows]),
        "text": [about(evidence, row) for row in rows],
        "hovertemplate": f"%{{text}}<br>%{{y:.4g}} {unit}<extra></extra>",
        "marker": {
            **{"symbol": symbol if whole else f"{symbol}-open", "color": colour},
            **{"size": _size(part, places), "line": {"width": 1.5, "color": colour}},
        },
    }


def _size(part: str, places: Mapping[str, int]) -> int:
    return 10 if part in COLOURS else 8 if len(places) <= _MANY else 4


def _best_so_far(evidence: Evidence, rows: Sequence[Row], places: dict[str, int]) -> dict[str, Any] | None:
    better = min if evidence.objective.direction == "minimize" else max
    x: list[int] = []
    y: list[float] = []
    for row in rows:
        if counts(row):
            best = better(y[-1], row["objective"]) if y else row["objective"]
            x.append(places[row["trial"]])
            y.append(best)
    if not y:
        return None
    x, y = [*x, len(places)], [*y, y[-1]]
    return {
        **{"type": "scatter", "mode": "lines", "name": "best so far", "hoverinfo": "skip"},
        **{"x": x, "y": scaled(evidence.objective.metric, y)},
        "line": {"shape": "hv", "width": 2, "color": ACCENT},
    }


def _lost(evidence: Evidence, rows: Sequence[Row], places: dict[str, int]) -> dict[str, Any]:
    return {
        **{"type": "scatter", "mode": "markers", "name": "no value", "yaxis": "y2"},
        **{"x": [places[row["trial"]] for row in rows], "y": [0.02] * len(rows)},
        **{"customdata": [row["trial"] for row in rows], "text": [about(evidence, row) for row in rows]},
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "symbol": "x-thin",
            "size": _size("", places),
            "line": {"width": 1.5, "color": "var(--bad)"},
        },
    }
