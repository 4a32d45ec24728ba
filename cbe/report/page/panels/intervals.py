"""The ranked configs beside each other: every run, the mean and its interval."""

from __future__ import annotations

from typing import Any

from cbe.report.best import Ranked
from cbe.report.page.evidence import Evidence
from cbe.report.page.numbers import METRICS
from cbe.report.page.panel import COLOURS, MARKS, MUTED, Panel, escape, scaled, value_axis


def intervals(evidence: Evidence) -> Panel | None:
    answer = evidence.answer
    if answer is None or len(answer.ranked) < 2:
        return None
    data = [trace for ranked in reversed(answer.ranked) for trace in _traces(evidence, ranked)]
    unseen = "the confirmation, on seeds and label splits that the search never saw"
    whose = unseen if answer.confirmed else "the search"
    note = f"Strokes are single runs of {whose}; marks their means, with 95 % intervals where n > 1."
    layout = {
        "height": 110 + 42 * len(answer.ranked),
        "xaxis": value_axis(answer.metric),
        "yaxis": {"type": "category", "showgrid": False},
        **{"showlegend": False, "hovermode": "closest"},
    }
    return Panel("intervals", "The configs beside each other", note, {"data": data, "layout": layout})


def _traces(evidence: Evidence, ranked: Ranked) -> list[dict[str, Any]]:
    part = next((name for name, each in evidence.chosen.items() if each is ranked), "")
    colour, unit = COLOURS.get(part, MUTED), METRICS[evidence.objective.metric].unit
    label, runs = escape(ranked.preset or ranked.config_id), set(ranked.trials)
    rows = [row for row in evidence.rows if row["trial"] in runs]
    low, high = ranked.interval or (ranked.mean, ranked.mean)
    factor = METRICS[evidence.objective.metric].factor
    single = {
        **{"type": "scatter", "mode": "markers", "y": [label] * len(rows), "name": f"{label}, runs"},
        "x": scaled(evidence.objective.metric, [row["objective"] for row in rows]),
        "text": [
            f"{escape(row['trial'])}: seed {row['seed']}, label split {row['split_seed']}" for row in rows
        ],
        "customdata": [row["trial"] for row in rows],
        "hovertemplate": f"%{{text}}<br>%{{x:.4g}} {unit}<extra></extra>",
        "marker": {"symbol": "line-ns-open", "size": 11, "color": colour, "opacity": 0.55},
    }
    middle = {
        **{"type": "scatter", "mode": "markers", "y": [label], "name": label},
        "x": scaled(evidence.objective.metric, [ranked.mean]),
        "error_x": {
            **{"type": "data", "symmetric": False, "thickness": 2, "width": 5, "color": colour},
            # Errors and losses are not below 0, whatever a t-interval says.
            "array": [factor * (high - ranked.mean)],
            "arrayminus": [factor * (ranked.mean - max(low, 0.0))],
        },
        "hovertemplate": f"{label}, mean of {ranked.n}<br>%{{x:.4g}} {unit}<extra></extra>",
        "marker": {"symbol": MARKS.get(part, "circle"), "size": 11, "color": colour},
    }
    return [single, middle]
