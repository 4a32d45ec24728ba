"""The ranked configs beside each other: every run, the mean and its interval."""

from __future__ import annotations

from typing import Any

from cbe.configs import is_finite
from cbe.report.best import Answer, Ranked
from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import COLOURS, MARKS, MUTED, Panel, escape, scaled, value_axis
from cbe.spec.metrics import METRICS, PERCENT

_MAX_RATIO = 3  # times the largest run: the interval of two runs may end at hundreds of times


def intervals(evidence: Evidence) -> Panel | None:
    answer = evidence.answer
    if answer is None or len(answer.ranked) < 2:
        return None
    data = [trace for ranked in reversed(answer.ranked) for trace in _traces(evidence, ranked)]
    unseen = "the confirmation, on seeds and label splits that the search did not use"
    whose = unseen if answer.confirmed else "the search"
    note = f"Strokes: single runs of {whose}. Marks: their means, with 95 % intervals where n > 1."
    most = _most(evidence, answer)
    clip = {"autorangeoptions": {"clipmax": most}} if most else {}
    if most and any(each.interval and each.interval[1] > most for each in answer.ranked):
        note += " The table has the ends of intervals that leave the figure."
    layout = {
        "height": 110 + 42 * len(answer.ranked),
        "xaxis": value_axis(answer.metric, **clip),
        "yaxis": {"type": "category", "showgrid": False},
        **{"showlegend": False, "hovermode": "closest"},
    }
    return Panel("intervals", "Configs compared", note, {"data": data, "layout": layout})


def _most(evidence: Evidence, answer: Answer) -> float | None:
    """Where the axis ends at the latest, so that runs stay legible; None for metrics with an upper end."""
    shown = {trial for ranked in answer.ranked for trial in ranked.trials}
    values = [row["objective"] for row in evidence.rows if row["trial"] in shown]
    largest = max(filter(is_finite, values), default=0.0)  # a trial may have ended since rows were read
    return _MAX_RATIO * largest if METRICS[answer.metric].unit is not PERCENT and largest > 0 else None


def _traces(evidence: Evidence, ranked: Ranked) -> list[dict[str, Any]]:
    part = next((name for name, each in evidence.chosen.items() if each is ranked), "")
    colour, unit = COLOURS.get(part, MUTED), METRICS[evidence.objective.metric].unit.sign
    label, runs = escape(ranked.name), set(ranked.trials)
    rows = [row for row in evidence.rows if row["trial"] in runs]
    low, high = ranked.interval or (ranked.mean, ranked.mean)
    factor = METRICS[evidence.objective.metric].unit.factor
    single = {
        **{"type": "scatter", "mode": "markers", "y": [label] * len(rows), "name": f"{label}, runs"},
        "x": scaled(evidence.objective.metric, [row["objective"] for row in rows]),
        "text": [
            f"{escape(row['trial'])}: seed {row['seed']}, label split {row['label_split']}" for row in rows
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
            "array": [factor * (high - ranked.mean)],
            "arrayminus": [factor * (ranked.mean - low)],
        },
        "hovertemplate": f"{label}, mean of {ranked.n}<br>%{{x:.4g}} {unit}<extra></extra>",
        "marker": {"symbol": MARKS.get(part, "circle"), "size": 11, "color": colour},
    }
    return [single, middle]
