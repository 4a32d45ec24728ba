"""Which parameters matter, with the spread of the claim."""

from __future__ import annotations

from cbe.configs import counts
from cbe.report.importance import MAX_CONFIGS, RESAMPLES, importances
from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import ACCENT, Panel, escape
from cbe.words import plural

_TITLE = "Which parameters matter"


def matters(evidence: Evidence) -> Panel | None:
    if not evidence.study.search:
        return None
    found = importances(evidence.study, evidence.search)
    if not any(map(counts, evidence.search)):
        return None
    if isinstance(found, str):
        return Panel("importances", _TITLE, f"Not shown: {found}.", None)
    bars = list(reversed(found))  # plotly stacks them from below
    whole = sum(row["state"] == "completed" for row in evidence.search)
    early = sum(row["state"] == "pruned" for row in evidence.search)
    most = max(each.n for each in found)
    note = (
        "Share of each parameter in what separates the best quarter of the configs from all (PED-ANOVA). "
        f"Lines: the middle 90 % of {RESAMPLES} resamples; where they overlap, the order is uncertain. "
        f"Based on the {plural(whole, 'completed trial')}; {early:,} pruned ones have no final value."
    )
    if any(each.n < most for each in found):
        note += " A parameter that some configs do not have counts in those that have it (n)."
    if found[0].of > MAX_CONFIGS:
        note += f" {MAX_CONFIGS} configs were drawn for this from {found[0].of:,}."
    labels = [escape(each.key) + (f" (n = {each.n})" if each.n < most else "") for each in bars]
    trace = {
        **{"type": "bar", "orientation": "h", "y": labels, "x": [100 * each.value for each in bars]},
        "error_x": {
            **{"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": "var(--ink)"},
            "array": [100 * (each.high - each.value) for each in bars],
            "arrayminus": [100 * (each.value - each.low) for each in bars],
        },
        "text": [f"{100 * each.low:.0f} to {100 * each.high:.0f} %" for each in bars],
        **{"textposition": "none", "marker": {"color": ACCENT, "opacity": 0.75}},
        "hovertemplate": "%{y}: %{x:.0f} %<br>90 % of resamples: %{text}<extra></extra>",
    }
    layout = {
        "height": 110 + 30 * len(bars),
        "xaxis": {
            "title": {"text": "share, %"},
            "range": [0, min(100, 105 * max(each.high for each in bars))],
        },
        "yaxis": {"type": "category", "showgrid": False},
        **{"showlegend": False, "bargap": 0.45},
    }
    return Panel("importances", _TITLE, note, {"data": [trace], "layout": layout})
