"""The page as one file: template, style, scripts and data in one, and nothing fetched from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from cbe.errors import InputError
from cbe.files import replace_file
from cbe.report.page import facts, tables
from cbe.report.page.evidence import Evidence, gather
from cbe.report.page.numbers import axis_title
from cbe.report.page.panel import Panel
from cbe.report.page.panels import CONFIGS, COST, PAPER, SEARCH, panels
from cbe.spec.metrics import METRICS, on_test
from cbe.store.folder import StudyFolder

_HERE = "cbe.report.page"


def save(page: Callable[[], str], path: Path, name: str) -> int:
    """Writes a page once it is made, and says its size in bytes; neither replaces a folder nor makes one."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file, as -o {path / name}.html")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it, or give another -o")
    content = page().encode()
    try:
        replace_file(path, lambda file: file.write(content))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); give another file with -o") from None
    return len(content)


def render(folder: StudyFolder, again: str | None = None) -> str:
    """A study's report as HTML that needs no other file."""
    return to_html(gather(folder), again or f"cbe report {folder.name}")


def to_html(evidence: Evidence, again: str) -> str:
    found = grouped(evidence)
    style, scripts = _own("page.css"), [plotly(), _own("shared.js"), _own("page.js")]
    template = templates().get_template("page.html")
    return template.render(
        **content(evidence, found),
        policy=_policy(style, scripts),
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        data=Markup(to_json([panel.to_plain() for panel in drawn(found)])),
        banner=facts.banner(evidence),
        again=again,
        live=False,
    )


def templates() -> Environment:
    """The page's template and its parts; whatever they are given is escaped."""
    environment = Environment(
        loader=FunctionLoader(_own),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["together"] = _together
    return environment


def grouped(evidence: Evidence) -> dict[str, list[Panel]]:
    """The panels by the part of the page that shows them."""
    groups = {"search": SEARCH, "configs": CONFIGS, "paper": PAPER, "cost": COST}
    return {name: panels(evidence, makers) for name, makers in groups.items()}


def drawn(found: Mapping[str, Sequence[Panel]]) -> list[Panel]:
    """The panels that have a figure."""
    return [panel for group in found.values() for panel in group if panel.figure]


def content(evidence: Evidence, found: Mapping[str, Sequence[Panel]]) -> dict[str, Any]:
    """What the parts of the page say."""
    metric = evidence.objective.metric
    tested = any(on_test(each.metric) for each in evidence.study.objectives)
    keys, searched = tables.searched(evidence)
    return {
        "study": evidence.study,
        "evidence": evidence,
        "panels": found,
        "ranking": tables.ranking(evidence),
        "configs": keys,
        "searched": searched,
        "facts": facts.facts(evidence),
        "about": facts.about(evidence),
        "trials": tables.trials(evidence),
        "spent": tables.spent(evidence),
        "provenance": facts.provenance(evidence),
        "so_far": tables.searched_best(evidence),
        "metric": axis_title(metric),
        "metric_name": METRICS[metric].title,
        "unit": METRICS[metric].unit,
        "test_note": "Used for selection, so it says little about new images"
        if tested
        else "Not used for selection",
    }


def to_json(plain: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin another."""
    text = json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _together(text: str) -> str:
    """A text whose lines do not break between a number and its sign."""
    return text.replace(" %", "\u00a0%").replace("n = ", "n\u00a0=\u00a0").replace(" > ", "\u00a0>\u00a0")


def plotly() -> str:
    """Plotly's JavaScript as its package has it."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")


def _own(name: str) -> str:
    return (files(_HERE) / name).read_text("utf-8")


def _policy(style: str, scripts: list[str]) -> str:
    """Lets these very scripts run and forbids all else. Plotly writes styles of its own into its figures."""
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
