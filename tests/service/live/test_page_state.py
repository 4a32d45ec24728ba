"""The report's parts on a page that updates itself: escaped, there from the start, new only when they are."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

import cbe
from cbe.errors import InputError
from cbe.report.page.live import PARTS, live_page
from cbe.report.page.render import render
from cbe.service.routes import answers, studies, system, trials
from cbe.store.folder import Store
from tests.made import HOSTILE, Made, finished, status

WEB = Path(cbe.__file__).parent / "service" / "web" / "static"


class Elements(HTMLParser):
    """The names of all elements, their attributes and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_part_of_a_finished_study_speaks_as_the_report_does(tmp_path: Path) -> None:
    made = finished(tmp_path)
    page, report = live_page(made.folder), render(made.folder)
    assert tuple(page["html"]) == PARTS and all(page["html"].values())
    assert [panel["id"] for panel in page["panels"]] == [
        *("race", "history", "curves", "importances", "parallel", "slices", "intervals"),
        *("pseudo-labels", "ablation", "confusions", "heads", "lemma"),
    ]
    said = [" ".join(Elements(page["html"][part]).text.split()) for part in ("answer", "spent")]
    whole = " ".join(Elements(report).text.split())
    assert all(len(text) > 100 and text in whole for text in said)
    assert "<h1" not in page["html"]["answer"] and '<h2 id="sentence">' in page["html"]["answer"]


def test_every_trial_is_a_link_that_opens_it(tmp_path: Path) -> None:
    made = finished(tmp_path)
    links = Elements(live_page(made.folder)["html"]["trials"]).links
    assert len(links) == 28 and links[0] == "?trial=t0000" and "?trial=" not in render(made.folder)


def test_hostile_texts_are_texts_in_every_part(tmp_path: Path) -> None:
    plain = live_page(finished(tmp_path, "plain").folder)
    made = finished(tmp_path, question=HOSTILE)
    made.trial(
        None,
        {"ensemble.heads": 6, "loss.weights.lb": 1.1},
        **{"state": "failed", "steps": 0, "error_class": f"Odd{HOSTILE}", "error_text": HOSTILE},
        **{"node": HOSTILE, "device": HOSTILE, "git_commit": HOSTILE},
        versions=json.dumps({HOSTILE: HOSTILE}),
    )
    page = live_page(made.folder)
    for part in PARTS:
        found, usual = Elements(page["html"][part]), Elements(plain["html"][part])
        assert found.names <= usual.names | {"small", "b"} and found.attributes <= usual.attributes
        assert all(link.startswith("?trial=") for link in found.links)
    assert HOSTILE in Elements(page["html"]["trials"]).text
    assert Elements(page["html"]["provenance"]).text.count(HOSTILE) == 5
    json.dumps(page, allow_nan=False)


def test_a_study_without_trials_has_a_page_that_says_so(tmp_path: Path) -> None:
    made = Made(tmp_path)
    page = live_page(made.folder)
    assert "No trials yet" in page["html"]["answer"] and "Searched by" in page["html"]["answer"]
    assert "Cost" not in page["html"]["answer"]
    assert page["panels"] == [] and [part for part in PARTS if page["html"][part]] == ["answer"]


def test_the_version_changes_with_the_content_and_with_nothing_else(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base")
    status(made, "running")
    first = live_page(made.folder)
    status(made, "running", elapsed_s=250.0, beat=time.time())
    assert live_page(made.folder) == first
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0}, state="running")
    second = live_page(made.folder)
    assert second["version"] != first["version"] and second["html"]["trials"] != first["html"]["trials"]
    status(made, "stopped", elapsed_s=250.0)
    third = live_page(made.folder)
    assert third["version"] != second["version"] and "4.2 min by the clock" in third["html"]["answer"]
    assert "interrupted" in third["html"]["trials"] and re.fullmatch(r"[0-9a-f]{16}", third["version"])


def test_an_unknown_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is none of that name"):
        live_page(Store.open(str(tmp_path)).study("nothing"))


def test_only_what_the_service_has_rendered_is_read_as_html() -> None:
    scripts = {path.name: path.read_text("utf-8") for path in WEB.glob("*.js")}
    reads = re.compile(r"(inn|out)erHTML\b|insertAdjacentHTML|document\.write|DOMParser|\beval\(|Function\(")
    assert len(scripts) > 10
    assert [name for name, text in scripts.items() if reads.search(text)] == ["fragments.js"]


def test_the_page_runs_scripts_and_styles_of_the_service_alone() -> None:
    page = Elements((WEB / "index.html").read_text("utf-8"))
    assert not {name for name in page.attributes if name.startswith("on") or name == "style"}
    assert all(link.startswith(("/", "#", "data:,")) for link in page.links) and "style" not in page.names
    own = {path.name for path in WEB.iterdir()} | {"page.css", "shared.js"}
    assert {link.removeprefix("/assets/") for link in page.links if link.startswith("/assets/")} <= own


def test_the_page_of_the_api_leads_back_and_has_a_theme() -> None:
    page = Elements((WEB / "docs.html").read_text("utf-8"))
    assert {"/", "/submit", "/docs", "/assets/page.css", "/assets/shared.js"} <= set(page.links)
    assert "dark-mode" in (WEB / "docs.js").read_text("utf-8") and "Theme: auto" in page.text


def test_every_route_has_a_short_summary_and_a_description() -> None:
    routes = [
        route
        for each in (system, studies, trials, answers)
        for route in each.router.routes
        if isinstance(route, APIRoute) and route.include_in_schema
    ]
    assert len(routes) == 28
    for route in routes:
        assert route.summary and len(route.summary) <= 45 and len(route.description) > 20, route.path
    assert len({route.summary for route in routes}) == len(routes)
