"""The cluster while the study ran: trials that waited, trials that ran, machines that were there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import ACCENT, MUTED, SERIES, THREAD, Panel, legend
from cbe.store.rows import Row

_LINES = {  # column, colour, dash, fill
    "machines": ("nodes", MUTED, "solid", "tozeroy"),
    "machines on their way": ("starting", MUTED, "dot", "none"),
    "trials running": ("running", ACCENT, "solid", "none"),
    "trials waiting for a place": ("pending", SERIES[1], "dash", "none"),
}


def machines(evidence: Evidence) -> Panel | None:
    found = evidence.machines
    if found is None:
        return None
    unit, sign = _unit(found.rows)
    since = [round((row["time"] - found.rows[0]["time"]).total_seconds() / unit, 4) for row in found.rows]
    traces = [
        {
            **{"type": "scatter", "mode": "lines", "name": name, "x": since, "fill": fill},
            **({"fillcolor": THREAD} if fill != "none" else {}),
            "y": [row[column] for row in found.rows],
            "line": {"shape": "hv", "width": 2, "color": colour, "dash": dash},
            "hovertemplate": f"%{{y}} {name} at %{{x:.4g}} {sign}<extra></extra>",
        }
        for name, (column, colour, dash, fill) in _LINES.items()
    ]
    most = max(row[column] for row in found.rows for column, *_ in _LINES.values())
    layout: dict[str, Any] = {
        "height": 320,
        "xaxis": {"title": {"text": f"{sign} since the start of the study"}, "rangemode": "tozero"},
        "yaxis": {"rangemode": "tozero", "tickformat": "d", **({"dtick": 1} if most <= 10 else {})},
        "legend": legend(),
        "hovermode": "closest",
    }
    sentence = found.sentence()
    note = f"{sentence[0].upper()}{sentence[1:]}. The head is not counted."
    return Panel("machines", "Machines", note, {"data": traces, "layout": layout})


def _unit(rows: Sequence[Row]) -> tuple[int, str]:
    length = (rows[-1]["time"] - rows[0]["time"]).total_seconds()
    units = ((1, "seconds"), (60, "minutes"), (3600, "hours"))
    return max((each for each in units if length >= 5 * each[0]), default=units[0])
