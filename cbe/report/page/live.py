"""The page of a study that may still run: the report's parts one by one, for a page that updates itself."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from cbe.report.page.evidence import Evidence, gather_any
from cbe.report.page.render import content, drawn, grouped, templates, to_json
from cbe.store.folder import StudyFolder

PARTS = ("answer", "search", "configs", "paper", "trials", "spent", "provenance")


def live_page(folder: StudyFolder) -> dict[str, Any]:
    """The parts as HTML with every text of the study escaped, the figures, and a version of both together.

    A part that has nothing to say is empty. The version stays the same until something of it changes.
    """
    evidence = _settled(gather_any(folder))
    found = grouped(evidence)
    environment, values = templates(), content(evidence, found)
    values["provenance"] = [(name, text) for name, text in values["provenance"] if name != "Report made"]
    html = {
        part: environment.get_template(f"parts/{part}.html").render(**values, again="", live=True)
        if _speaks(part, evidence, values)
        else ""
        for part in PARTS
    }
    panels = [panel.to_plain() for panel in drawn(found)]
    version = hashlib.sha256(to_json([html, panels]).encode()).hexdigest()[:16]
    return {"version": version, "html": html, "panels": panels}


def _settled(evidence: Evidence) -> Evidence:
    """Without the clock of a running study, which the page has from elsewhere."""
    if evidence.progress.state != "running":
        return evidence
    return replace(evidence, progress=replace(evidence.progress, elapsed_s=None))


def _speaks(part: str, evidence: Evidence, values: dict[str, Any]) -> bool:
    if part in ("search", "paper"):
        return bool(values["panels"][part])
    if part == "configs":
        return bool(values["ranking"])
    return part == "answer" or bool(evidence.rows)
