"""The paper's own figures, of the best searched config, the paper's and the base."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import (
    BANDS,
    COLOURS,
    DASHES,
    FAINT,
    MARKS,
    NAMES,
    Panel,
    band,
    escape,
    legend,
    scaled,
    step_axis,
    value_axis,
)
from cbe.spec.metrics import METRICS

_BANDS = "Mean over the runs of each config, with a band from the lowest to the highest run."
UNKNOWN = "The true labels of the unlabeled images are unknown, so the accuracy cannot be computed."


def pseudo_labels(evidence: Evidence) -> Panel | None:
    """How many unlabeled images are used, and how many of these with the right class."""
    known = any(has_values(evidence, "pseudo_accuracy", each.trials) for each in evidence.chosen.values())
    note = f"{_BANDS} " + ("True labels of unlabeled images are used for figures only." if known else UNKNOWN)
    title = "Pseudo-labels: accuracy and sampling rate" if known else "Pseudo-labels: sampling rate"
    return _over_steps(evidence, "pseudo-labels", title, note)


def heads(evidence: Evidence) -> Panel | None:
    """How much the heads differ."""
    note = f"{_BANDS} A config with one head is not shown."
    return _over_steps(evidence, "heads", "How much the heads differ", note)


def lemma(evidence: Evidence) -> Panel | None:
    """The variance of the ensemble's prediction against the mean of its heads'."""
    data: list[dict[str, Any]] = []
    most = 0.0
    for part, each in evidence.chosen.items():
        runs = [(trial, evidence.curves[trial]) for trial in each.trials if trial in evidence.curves]
        points = [
            (x, y, trial, step)
            for trial, curve in runs
            for x, y, step in zip(
                curve["variance_heads"], curve["variance_ensemble"], curve["step"], strict=True
            )
            if x is not None and y is not None
        ]
        if points:
            most = max(most, *(max(x, y) for x, y, *_ in points))
            data.append(_points(part, points))
    if not data or not most:
        return None
    diagonal = {
        **{"type": "scatter", "mode": "lines", "x": [0, most], "y": [0, most], "name": "equal"},
        **{"line": {"color": FAINT, "width": 1.5}, "hoverinfo": "skip"},
    }
    layout = {
        **{"height": 400, "legend": legend(), "hovermode": "closest"},
        **{"xaxis": value_axis("variance_heads"), "yaxis": value_axis("variance_ensemble")},
    }
    note = "Each mark is an evaluation of a run. By the lemma, no mark lies above the line."
    figure = {"data": [diagonal, *data], "layout": layout}
    return Panel("lemma", "Lemma 2: the ensemble varies less than its heads", note, figure)


def _points(part: str, points: Sequence[tuple[float, float, str, int]]) -> dict[str, Any]:
    return {
        **{"type": "scatter", "mode": "markers", "name": NAMES[part]},
        **{"x": [x for x, *_ in points], "y": [y for _, y, *_ in points]},
        "text": [f"{escape(trial)}, step {step:,}" for *_, trial, step in points],
        "customdata": [trial for *_, trial, _ in points],
        "hovertemplate": "%{text}<br>heads %{x:.3g}, ensemble %{y:.3g}<extra></extra>",
        "marker": {"symbol": MARKS[part], "size": 7, "color": COLOURS[part], "opacity": 0.8},
    }


def _over_steps(evidence: Evidence, name: str, title: str, note: str) -> Panel | None:
    """The panel of that name, with a cell for each of its metrics that is known."""
    metrics = [
        metric
        for metric, about in METRICS.items()
        if about.panel == name
        and any(has_values(evidence, metric, each.trials) for each in evidence.chosen.values())
    ]
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        **{"height": 360, "legend": legend(), "hovermode": "x unified"},
        "grid": {"rows": 1, "columns": len(metrics), "pattern": "independent"},
        "meta": {"cells": len(metrics), "width": 420, "height": 340},
    }
    for place, metric in enumerate(metrics, start=1):
        at = str(place) if place > 1 else ""
        layout[f"xaxis{at}"], layout[f"yaxis{at}"] = step_axis(), value_axis(metric)
        axes = {"xaxis": f"x{at}", "yaxis": f"y{at}"}
        for part, each in evidence.chosen.items():
            shown_before = any(trace.get("legendgroup") == part for trace in data)
            data += [
                trace | axes | ({"showlegend": False} if shown_before else {})
                for trace in mean_and_band(evidence, part, each.trials, metric)
            ]
    return Panel(name, title, note, {"data": data, "layout": layout}) if data else None


def mean_and_band(evidence: Evidence, part: str, trials: Sequence[str], metric: str) -> list[dict[str, Any]]:
    """A config's mean over the steps that all its runs have, and the range of its runs."""
    x, low, middle, high, n = over_runs(evidence, trials, metric)
    if not x:
        return []
    unit = METRICS[metric].unit.sign
    line = {
        **{"type": "scatter", "mode": "lines", "name": f"{NAMES[part]} (n = {n})", "legendgroup": part},
        **{"x": x, "y": middle, "line": {"width": 2.5, "color": COLOURS[part], "dash": DASHES[part]}},
        "hovertemplate": f"%{{y:.4g}} {unit}",
    }
    group = {"legendgroup": part, "name": f"{NAMES[part]}, range"}
    return [band(group, x, low, high, BANDS[part]), line] if n > 1 else [line]


def has_values(evidence: Evidence, metric: str, trials: Sequence[str]) -> bool:
    """Whether a figure of some trials is known at all."""
    curves = (evidence.curves.get(trial, {}) for trial in trials)
    return any(value is not None for curve in curves for value in curve.get(metric, ()))


def over_runs(
    evidence: Evidence, trials: Sequence[str], metric: str
) -> tuple[list[int], list[Any], list[Any], list[Any], int]:
    """Steps, lowest, mean and highest of the runs, and their number."""
    runs = []
    for trial in trials:
        curve = evidence.curves.get(trial)
        if curve is not None and metric in curve:
            pairs = zip(curve["step"], curve[metric], strict=True)
            runs.append({step: value for step, value in pairs if value is not None})
    runs = [run for run in runs if run]
    steps = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    columns = [[run[step] for run in runs] for step in steps]
    low, middle, high = ([each(column) for column in columns] for each in (min, mean, max))
    return steps, scaled(metric, low), scaled(metric, middle), scaled(metric, high), len(runs)
