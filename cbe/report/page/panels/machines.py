"""The cluster while the study ran: trials that waited, trials that ran, machines that were there."""

from __future__ import annotations

from typing import Any

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import ACCENT, MUTED, SERIES, Panel, legend


def machines(evidence: Evidence) -> Panel | None:
    found = evidence.machines
    if found is None:
        return None
    minutes = _minutes([row["time"] for row in found.rows])
    lines = {
        "machines": ("nodes", SERIES[0], "solid", "tozeroy"),
        "machines on their way": ("starting", SERIES[1], "dot", "none"),
        "trials running": ("running", ACCENT, "solid", "none"),
        "trials waiting for a place": ("pending", MUTED, "dash", "none"),
    }
    traces = [
        {
            **{"type": "scatter", "mode": "lines", "name": name, "x": minutes, "fill": fill},
            "y": [row[column] for row in found.rows],
            "line": {"shape": "hv", "width": 2, "color": colour, "dash": dash},
            "hovertemplate": f"%{{y}} {name} at %{{x:.2f}} min<extra></extra>",
        }
        for name, (column, colour, dash, fill) in lines.items()
    ]
    layout: dict[str, Any] = {
        "height": 320,
        "xaxis": {"title": {"text": "minutes since the first trial was wanted"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "number"}, "rangemode": "tozero", "tickformat": "d"},
        "legend": legend(),
        "hovermode": "closest",
    }
    note = f"{found.told()[0].upper()}{found.told()[1:]}. The head is not counted."
    return Panel("machines", "Machines", note, {"data": traces, "layout": layout})


def _minutes(times: list[Any]) -> list[float]:
    return [round((time - times[0]).total_seconds() / 60, 4) for time in times]
