"""What the low bias and the low variance loss add, where the search varies their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbe.configs import counts
from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.panel import SERIES, Panel, band, legend, shown, step_axis, value_axis
from cbe.report.page.panels.paper import UNKNOWN, has_values, over_runs
from cbe.spec import Parameter
from cbe.spec.metrics import METRICS
from cbe.store.rows import Row

_KEYS = {"loss.weights.lb": "lb", "loss.weights.lv": "lv"}
_METRICS = ("validation_error", "pseudo_accuracy")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def ablation(evidence: Evidence) -> Panel | None:
    keys = [key for key in _KEYS if key in evidence.study.search]
    if not keys:
        return None
    groups = _groups(evidence, keys)
    trained = {name: [row for row in rows if counts(row)] for name, rows in groups.items()}
    trials = [row["trial"] for rows in trained.values() for row in rows]
    metrics = [metric for metric in _METRICS if has_values(evidence, metric, trials)]
    data: list[dict[str, Any]] = []
    for place, metric in enumerate(metrics, start=1):
        at = str(place) if place > 1 else ""
        for number, (name, rows) in enumerate(trained.items()):
            traces = _traces(
                evidence, f"{name} (n = {len(rows)} of {len(groups[name])})", number, rows, metric
            )
            data += [
                {**trace, "xaxis": f"x{at}", "yaxis": f"y{at}", **({"showlegend": False} if at else {})}
                for trace in traces
            ]
    if len({trace["legendgroup"] for trace in data}) < 2:
        return None
    layout: dict[str, Any] = {
        **{"height": 380, "legend": legend(), "hovermode": "x unified"},
        "grid": {"rows": 1, "columns": len(metrics), "pattern": "independent"},
        "meta": {"cells": len(metrics), "width": 420, "height": 360},
    }
    for place, metric in enumerate(metrics, start=1):
        at = str(place) if place > 1 else ""
        layout |= {f"xaxis{at}": step_axis(), f"yaxis{at}": value_axis(metric)}
    note = "Mean and range of the search's trials by the weights of the two losses (lb, lv). "
    note += "Only completed trials count: a group that lost many looks better than it is."
    note += "" if "pseudo_accuracy" in metrics else f" {UNKNOWN}"
    lost = [name for name, rows in trained.items() if not rows]
    note += f" No trial completed with {'; '.join(lost)}." if lost else ""
    seen = sum(map(len, groups.values()))
    begun = sum(bool(row["step"]) and point_of(row).keys() >= set(keys) for row in evidence.search)
    note += f" Of {begun:,} trials {seen:,} were looked at, evenly over the study." if seen < begun else ""
    title = "Ablation of the low bias and the low variance loss"
    return Panel("ablation", title, note, {"data": data, "layout": layout})


def _groups(evidence: Evidence, keys: Sequence[str]) -> dict[str, list[Row]]:
    """Trials by their weights; ranges are halved, at the middle as they are searched."""
    found: dict[tuple[tuple[int, str], ...], list[Row]] = {}
    for row in evidence.search:
        point = point_of(row)
        if row["trial"] in evidence.curves and all(key in point for key in keys):
            name = tuple(_group(key, evidence.study.search[key], point[key]) for key in keys)
            found.setdefault(name, []).append(row)
    return {", ".join(text for _, text in name): found[name] for name in sorted(found)[: len(SERIES)]}


def _group(key: str, parameter: Parameter, value: Any) -> tuple[int, str]:
    name, listed = _KEYS[key], parameter.listed
    if parameter.scale == "category":
        return listed.index(value) if value in listed else -1, f"{name} = {shown(value)}"
    middle = parameter.from_unit(0.5)
    return int(value >= middle), f"{name} {'≥' if value >= middle else '<'} {middle:.3g}"


def _traces(
    evidence: Evidence, name: str, number: int, rows: Sequence[Row], metric: str
) -> list[dict[str, Any]]:
    x, low, middle, high, n = over_runs(evidence, [row["trial"] for row in rows], metric)
    if not x:
        return []
    colour = SERIES[number]
    line = {
        **{"type": "scatter", "mode": "lines", "name": name, "legendgroup": name, "x": x, "y": middle},
        "line": {"width": 2.5, "color": colour, "dash": _DASHES[number]},
        "hovertemplate": f"%{{y:.4g}} {METRICS[metric].unit.sign}",
    }
    fill = colour.replace(")", "-band)")
    group = {"legendgroup": name, "name": f"{name}, range"}
    return [band(group, x, low, high, fill), line] if n > 1 else [line]
