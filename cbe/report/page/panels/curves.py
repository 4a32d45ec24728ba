"""Learning curves: the chosen configs strong, all others faint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import (
    COLOURS,
    DASHES,
    MUTED,
    NAMES,
    THREAD,
    Panel,
    escape,
    legend,
    scaled,
    step_axis,
    value_axis,
)
from cbe.spec.metrics import METRICS
from cbe.store.rows import Row


def curves(evidence: Evidence) -> Panel | None:
    metric = evidence.objective.metric
    strong = {trial: part for part, each in evidence.chosen.items() for trial in each.trials}
    drawn = [row for row in evidence.rows if _has_values(evidence, row["trial"])]
    others = [row for row in drawn if row["trial"] not in strong]
    traces: list[dict[str, Any]] = []
    if others:
        traces.append(_faint(evidence, others))
    stopped = [row for row in others if row["state"] == "pruned"]
    if stopped:
        traces.append(_ends(evidence, stopped))
    for part, each in evidence.chosen.items():
        traces += _strong(evidence, part, [trial for trial in each.trials if _has_values(evidence, trial)])
    if not traces:
        return None
    note = _note(evidence, [row for row in drawn if row["trial"] in strong], others, bool(stopped))
    begun = sum(bool(row["step"]) for row in evidence.rows)
    if len(drawn) < begun:
        note += f" {len(drawn):,} of {begun:,} curves are drawn, evenly over the study."
    layout = {
        **{"height": 440, "xaxis": step_axis(), "yaxis": value_axis(metric), "legend": legend()},
        "hovermode": "closest",
    }
    return Panel("curves", "Learning curves", note, {"data": traces, "layout": layout})


def _note(evidence: Evidence, strong: Sequence[Row], others: Sequence[Row], pruned: bool) -> str:
    """What is drawn, and how."""
    title = METRICS[evidence.objective.metric].title
    note = f"{title[0].upper()}{title[1:]} at each evaluation."
    parts = [part for part in evidence.chosen if any(evidence.part(row) == part for row in strong)]
    if parts:
        roles = sorted({str(row["role"]) for row in strong}, reverse=True)
        of = " and ".join({"search": "the search", "confirm": "the confirmation"}[role] for role in roles)
        note += f" Thick: each run of {of} with {_listed([evidence.called(part) for part in parts])}."
    if others:
        by_state = Counter(row["state"] for row in others)
        told = {"still running": by_state["running"], "paused": by_state["paused"]}
        parts = [f"{count:,} of them {state}" for state, count in told.items() if count]
        note += f" {', '.join(['Thin: all other trials', *parts])}."
    return note + (" × marks a trial that the scheduler pruned." if pruned else "")


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _has_values(evidence: Evidence, trial: str) -> bool:
    curve = evidence.curves.get(trial)
    return curve is not None and any(value is not None for value in curve[evidence.objective.metric])


def _template(metric: str) -> str:
    return f"%{{text}}<br>step %{{x:,}}: %{{y:.4g}} {METRICS[metric].unit.sign}<extra></extra>"


def _faint(evidence: Evidence, rows: Sequence[Row]) -> dict[str, Any]:
    """All in one trace, with gaps between them: hundreds of traces would be slow."""
    metric = evidence.objective.metric
    x: list[Any] = []
    y: list[Any] = []
    names: list[str] = []
    texts: list[str] = []
    for row in rows:
        curve = evidence.curves[row["trial"]]
        x += [*curve["step"], None]
        y += [*scaled(metric, curve[metric]), None]
        names += [row["trial"]] * (len(curve["step"]) + 1)
        texts += [escape(row["trial"])] * (len(curve["step"]) + 1)
    return {
        **{"type": "scatter", "mode": "lines", "name": "other trials", "x": x, "y": y, "text": texts},
        **{"customdata": names, "hovertemplate": _template(metric), "line": {"width": 1, "color": THREAD}},
    }


def _ends(evidence: Evidence, rows: Sequence[Row]) -> dict[str, Any]:
    metric = evidence.objective.metric
    ends = [(row["trial"], evidence.curves[row["trial"]]) for row in rows]
    names = [trial for trial, _ in ends]
    return {
        **{"type": "scatter", "mode": "markers", "name": "pruned"},
        **{"x": [curve["step"][-1] for _, curve in ends], "customdata": names},
        "text": [escape(name) for name in names],
        "y": scaled(metric, [curve[metric][-1] for _, curve in ends]),
        "hovertemplate": _template(metric),
        "marker": {"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": MUTED}},
    }


def _strong(evidence: Evidence, part: str, trials: Sequence[str]) -> list[dict[str, Any]]:
    metric = evidence.objective.metric
    return [
        {
            **{"type": "scatter", "mode": "lines", "name": NAMES[part], "legendgroup": part},
            **{"showlegend": number == 0, "x": evidence.curves[trial]["step"]},
            "y": scaled(metric, evidence.curves[trial][metric]),
            "text": [f"{escape(trial)} ({NAMES[part]})"] * len(evidence.curves[trial]["step"]),
            **{"customdata": [trial] * len(evidence.curves[trial]["step"])},
            "hovertemplate": _template(metric),
            "line": {"width": 2.5, "color": COLOURS[part], "dash": DASHES[part]},
        }
        for number, trial in enumerate(trials)
    ]
