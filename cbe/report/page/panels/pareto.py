"""What no other config beats in every objective, where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from cbe.configs import grouped, is_finite
from cbe.names import config_names
from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import ACCENT, COLOURS, MARKS, MUTED, Panel, escape, legend, scaled, value_axis
from cbe.spec.metrics import METRICS

Values = tuple[float, ...]


def pareto(evidence: Evidence) -> Panel | None:
    """The first objective against each other one."""
    metrics = [each.metric for each in evidence.study.objectives]
    answer = evidence.answer
    if len(metrics) < 2 or answer is None:
        return None
    configs = _configs(evidence)
    if not configs:
        return None
    on_front = {point.config_id: tuple(point.values.values()) for point in answer.front}
    names = config_names(evidence.rows)
    parts = {each.config_id: part for part, each in evidence.chosen.items()}
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"height": 400, "legend": legend(), "hovermode": "closest"}
    for place, metric in enumerate(metrics[1:], start=1):
        at = str(place) if place > 1 else ""
        axes = {"xaxis": f"x{at}", "yaxis": f"y{at}", "showlegend": place == 1}
        data += [trace | axes for trace in _traces(configs, on_front, parts, metrics, place, names)]
        layout[f"xaxis{at}"] = value_axis(metric, rangemode="normal")
        layout[f"yaxis{at}"] = value_axis(metrics[0])
    if len(metrics) > 2:
        layout["grid"] = {"rows": 1, "columns": len(metrics) - 1, "pattern": "independent"}
        layout["meta"] = {"cells": len(metrics) - 1, "width": 420, "height": 360}
    note = "Mean over the search's runs. No other config beats one on the front in every objective."
    return Panel("pareto", "Pareto front", note, {"data": data, "layout": layout})


def _configs(evidence: Evidence) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for config in grouped(evidence.rows, evidence.study):
        runs = [row["values"] for row in config.completed("search") if row["values"]]
        runs = [values for values in runs if all(map(is_finite, values))]
        if runs:
            found[config.config_id] = tuple(mean(values) for values in zip(*runs, strict=True))
    return found


def _traces(
    configs: dict[str, Values],
    on_front: dict[str, Values],
    parts: dict[str, str],
    metrics: Sequence[str],
    place: int,
    names: dict[str, str],
) -> list[dict[str, Any]]:
    first, other = metrics[0], metrics[place]
    template = (
        f"%{{text}}<br>{METRICS[first].title} %{{y:.4g}} {METRICS[first].unit.sign}"
        f"<br>{METRICS[other].title} %{{x:,.4g}} {METRICS[other].unit.sign}<extra></extra>"
    )

    def marks(name: str, members: list[str], marker: dict[str, Any]) -> dict[str, Any]:
        return {
            **{
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "text": [escape(names.get(each, each)) for each in members],
            },
            "x": scaled(other, [configs[each][place] for each in members]),
            "y": scaled(first, [configs[each][0] for each in members]),
            **{"hovertemplate": template, "marker": marker},
        }

    traces: list[dict[str, Any]] = []
    if len(metrics) == 2:  # of more, the front is no line
        line = sorted(on_front.values(), key=lambda values: values[place])
        traces.append(
            {
                **{"type": "scatter", "mode": "lines", "name": "Pareto front", "hoverinfo": "skip"},
                **{"x": scaled(other, [v[place] for v in line]), "y": scaled(first, [v[0] for v in line])},
                "line": {"width": 2, "color": ACCENT},
            }
        )
    rest = [each for each in configs if each not in on_front and each not in parts]
    best = [each for each in configs if each in on_front and each not in parts]
    if rest:
        traces.append(marks("other configs", rest, {"symbol": "circle-open", "size": 8, "color": MUTED}))
    if best:
        traces.append(marks("on the front", best, {"symbol": "circle", "size": 9, "color": ACCENT}))
    for config, part in parts.items():
        if config in configs:
            marker = {"symbol": MARKS[part], "size": 12, "color": COLOURS[part]}
            name = "best in the first objective" if part == "chosen" else part
            traces.append(marks(name, [config], marker))
    return traces
