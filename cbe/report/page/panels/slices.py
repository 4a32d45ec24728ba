"""The objective over each searched parameter alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbe.configs import is_finite
from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.numbers import axis_title
from cbe.report.page.panel import (
    COLOURS,
    MARKS,
    MUTED,
    NAMES,
    Panel,
    escape,
    legend,
    parameter_axis,
    placed,
    scaled,
    shown,
    value_axis,
)
from cbe.spec import Parameter
from cbe.spec.metrics import METRICS
from cbe.store.rows import Row

MAX_POINTS = 600  # points a slice


def slices(evidence: Evidence) -> Panel | None:
    rows = [row for row in evidence.search if is_finite(row["objective"])]
    keys = [key for key in evidence.study.search if any(key in point_of(row) for row in rows)]
    if not rows or not keys:
        return None
    every = -(-len(rows) // MAX_POINTS)
    drawn = [row for at, row in enumerate(rows) if at % every == 0 or row["preset"] or evidence.part(row)]
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        **{"height": 240 * -(-len(keys) // 3), "legend": legend(), "hovermode": "closest"},
        "grid": {"rows": -(-len(keys) // 3), "columns": 3, "pattern": "independent"},
        "meta": {"cells": len(keys), "width": 300, "height": 240},
    }
    named: set[str] = set()
    for place, key in enumerate(keys, start=1):
        at = str(place) if place > 1 else ""
        layout[f"xaxis{at}"] = parameter_axis(key, evidence.study.search[key], nticks=6)
        layout[f"yaxis{at}"] = value_axis(
            evidence.objective.metric, title={"text": ""}, matches="y" if at else None
        )
        for trace in _slice(evidence, key, drawn):
            first = trace["name"] not in named
            named.add(trace["name"])
            data.append(trace | {"xaxis": f"x{at}", "yaxis": f"y{at}", "showlegend": first})
    title = axis_title(evidence.objective.metric)
    note = f"{title[0].upper()}{title[1:]}, over one parameter at a time; the other parameters vary too."
    ends = {_ends(row) for row in drawn}
    note += " Hollow: ended early (pruned, interrupted or failed)." if "early" in ends else ""
    unended = {"running": "still running", "paused": "paused"}
    if said := [words for state, words in unended.items() if state in ends]:
        note += f" Hollow with a dot: {' or '.join(said)}, at its last evaluation."
    if every > 1:
        note += f" {len(drawn):,} of {len(rows):,} trials are drawn."
    return Panel("slices", "One parameter at a time", note, {"data": data, "layout": layout})


def _ends(row: Row) -> str:
    """How far a trial came: whole, early, or not yet to its end."""
    return {"completed": "whole", "running": "running", "paused": "paused"}.get(row["state"], "early")


_SAID = {"whole": "", "early": ", ended early", "running": ", still running", "paused": ", paused"}
_SYMBOLS = {"whole": "", "early": "-open", "running": "-open-dot", "paused": "-open-dot"}


def _has_place(parameter: Parameter, value: Any) -> bool:
    """Whether a preset's value, which the search need not allow, can stand on the search's axis."""
    if parameter.scale == "category":
        return True
    return not isinstance(value, str) and bool(parameter.listed[0] <= value <= parameter.listed[-1])


def _slice(evidence: Evidence, key: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    parameter, metric = evidence.study.search[key], evidence.objective.metric
    groups: dict[tuple[str | None, str], list[tuple[Row, Any]]] = {}
    for row in rows:
        point = point_of(row)
        if key in point and _has_place(parameter, point[key]):
            part = evidence.part(row) or row["preset"]
            groups.setdefault((part, _ends(row)), []).append((row, point[key]))
    traces = []
    for (part, ends), members in sorted(groups.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        symbol, colour = MARKS.get(part or "", "circle"), COLOURS.get(part or "", MUTED)
        traces.append(
            {
                **{"type": "scatter", "mode": "markers", "legendgroup": f"{part}{ends}", "cliponaxis": False},
                "name": NAMES.get(part or "", "searched") + _SAID[ends],
                "x": [placed(parameter, value) for _, value in members],
                "y": scaled(metric, [row["objective"] for row, _ in members]),
                "text": [f"{escape(row['trial'])}<br>{escape(shown(value))}" for row, value in members],
                "customdata": [row["trial"] for row, _ in members],
                "hovertemplate": f"%{{text}}: %{{y:.4g}} {METRICS[metric].unit.sign}<extra></extra>",
                "marker": {
                    **{"symbol": f"{symbol}{_SYMBOLS[ends]}", "color": colour},
                    "size": 10 if part else 7,
                },
            }
        )
    return traces
