"""The page in a real browser, before a real service on a real cluster: all that a reader does there."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from cbe.processes import BackgroundProcess, born
from cbe.service.queue import submissions
from cbe.service.queue.submissions import Submission
from cbe.store.folder import Store
from tests.browser import Shown
from tests.made import HOSTILE, Made, finished, status
from tests.service.conftest import Served, jobs_at, text_of
from tests.service.on_ray.windows import Open, drawn
from tests.waiting import until

PLAIN = " ".join(HOSTILE.split())
MANY = {"scheduler": "none", "budget": {"trials": 2000}, "search": {"training.lr": {"float": [0.01, 0.1]}}}

TIME = re.compile(r"([\d.]+ to|about) [\d.]+\xa0(s|min|h)")

Roles = tuple[Served, dict[str, str]]


def line_top(page: Page, line: int) -> float:
    """Where a line of the editor is."""
    found: float = page.eval_on_selector(
        "#yaml",
        """(text, line) => {
          const style = getComputedStyle(text);
          const height = parseFloat(style.lineHeight);
          return text.getBoundingClientRect().top + parseFloat(style.paddingTop) + (line - 1) * height
            - text.scrollTop;
        }""",
        line,
    )
    return found


def test_a_study_is_written_priced_submitted_watched_and_stopped_by_hand(
    served: Served, opened: Open
) -> None:
    seen = opened(served)
    page = seen.page
    expect(page.locator("#empty")).to_contain_text("There are no studies yet")
    page.click("#empty a")
    expect(page.locator("#check.good")).to_contain_text("No faults: 6 trials")  # of the example
    is_checked_and_priced(page, text_of("by-hand", **MANY))
    page.click("#submit")
    page.wait_for_url("**/studies/by-hand")
    page.evaluate("window.same = true")  # until it is loaded again
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#running li").first).to_contain_text("of 40 steps")
    ended = page.locator("#trial-table tr[data-trial]:has(.state.completed)").first
    expect(ended).to_be_visible()
    expect(page.locator("#progress .count").first).to_have_text(re.compile(r"[1-9]\d* of 2000"))
    assert page.evaluate("window.same")

    trial = str(ended.get_attribute("data-trial"))
    page.click("#stop")
    expect(page.locator("#state")).to_have_text("stopped")
    expect(page.locator("#problem")).to_have_text("Stopped: it was asked to stop")
    expect(page.locator("#resume")).to_be_enabled()
    expect(page.locator("#stop")).to_be_disabled()
    expect(page.locator("#log-text")).to_contain_text("it was asked to stop")
    assert page.evaluate("window.same") and served.state("by-hand") == "stopped"

    is_opened_and_closed(seen, page.locator(f"tr[data-trial={trial}] a"), trial)
    linked = Shown(page.context.new_page(), f"{served.url}/")
    linked.page.goto(f"{served.url}/studies/by-hand?trial={trial}")
    drawn(linked, trial)
    linked.page.keyboard.press("Escape")
    expect(linked.page.locator("#trial")).to_be_hidden()
    assert linked.page.url == f"{served.url}/studies/by-hand" and linked.faults() == []
    assert seen.faults() == []


def is_checked_and_priced(page: Page, text: str) -> None:
    """A file with a fault is written and mended; what it takes is told before the button that submits it."""
    line = 1 + text.splitlines().index("confirm:")
    page.fill("#yaml", text.replace("confirm:", "confirmm:"))
    expect(page.locator("#check.fault")).to_have_text("1 fault")
    expect(page.locator("#faults li")).to_have_text(
        f"Line {line}, confirmm: unknown keydid you mean confirm?"
    )
    marked = page.locator(".gutter .marked")
    expect(marked).to_have_text(str(line))
    box = marked.bounding_box()
    assert box and abs(box["y"] - line_top(page, line)) < 1
    assert page.is_disabled("#submit") and page.is_disabled("#plan")

    page.click("#faults button")
    assert page.evaluate("getSelection().toString()") == "confirmm:"
    page.keyboard.type("confirm:")
    expect(page.locator("#check.good")).to_contain_text("No faults: 2,000 trials over 1 parameter by prior")
    expect(marked).to_have_count(0)
    page.click("#plan")
    told = page.locator("#plan-result .plan")
    expect(told).to_contain_text("Trials2,000 to search, 0 to confirm")
    expect(told.locator("div:has(dt:text-is('Time')) dd")).to_have_text(TIME)
    told_at, submit_at = told.bounding_box(), page.locator("#submit").bounding_box()
    assert told_at and submit_at and told_at["y"] + told_at["height"] <= submit_at["y"]
    expect(page.locator("#submit")).to_be_enabled()


def is_opened_and_closed(seen: Shown, link: Locator, trial: str) -> None:
    page, before = seen.page, seen.page.url
    link.click()
    drawn(seen, trial)
    assert page.url == f"{before}?trial={trial}"
    assert f"cbe show by-hand/{trial} --yaml" in seen.text("#trial-rerun")
    page.click("#trial summary >> text=Log")
    expect(page.locator("#trial-log")).to_contain_text("begins, on cpu of")
    page.click("#trial summary >> text=Config")
    assert f"# Trial by-hand/{trial}" in seen.text("#trial-yaml") and "steps: 40" in seen.text("#trial-yaml")
    page.keyboard.press("Escape")
    expect(page.locator("#trial")).to_be_hidden()
    page.wait_for_url(before)
    expect(link).to_be_focused()


def test_the_page_and_the_service_tell_the_same_numbers(
    stocked: Served, opened: Open, tmp_path: Path
) -> None:
    answer = stocked.http.get("/api/studies/made/best", params={"k": 5}).json()
    best = stocked.http.get("/api/studies/made").json()["best"]
    seen = opened(stocked)
    page = seen.page
    expect(page.locator("tr[data-study=made]")).to_contain_text(f"{100 * best:.2f}\u00a0%")
    page.click("tr[data-study=made] a")
    page.wait_for_selector("#report[data-version]")
    assert seen.text("#sentence") == answer["headline"] and seen.text("#figures") == answer["sentence"]
    rows = page.eval_on_selector_all(
        ".ranking tbody tr", "all => all.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    )
    shown = [(row[1], row[2], row[3]) for row in rows if row[0] != "–"]
    told = [(each["name"], str(each["n"]), f"{100 * each['mean']:.2f}") for each in answer["ranked"]]
    assert shown == told and len(told) == 3

    trial = stocked.http.get("/api/studies/made/trials/t0004").json()
    page.click("tr[data-trial=t0004] a")
    drawn(seen, "t0004")
    assert f"{100 * trial['objective']:.2f} % validation error" in seen.text("#trial .facts")
    curve = page.evaluate("document.getElementById('trial-errors').data[0]")
    assert curve["x"] == [row["step"] for row in trial["curve"]]
    assert curve["y"] == pytest.approx([100 * row["validation_error"] for row in trial["curve"]])
    assert seen.text("#trial-rerun") == trial["rerun"]
    assert page.locator("[data-title^=Share]").count() == 0  # plotly would send the figure elsewhere
    page.keyboard.press("Escape")
    with page.expect_download() as downloaded:
        page.click("#download")
    assert downloaded.value.suggested_filename == "made.html"
    downloaded.value.save_as(tmp_path / "made.html")
    page_text = (tmp_path / "made.html").read_text("utf-8")
    assert answer["ranked"][0]["config_id"] in page_text and seen.faults() == []


def test_a_trial_that_waits_at_a_rung_is_told_as_paused(stocked: Served, opened: Open) -> None:
    made = Made(stocked.store, "racing")
    for heads in (4, 5, 6):
        made.trial(0.3, {"ensemble.heads": heads, "loss.weights.lb": 1.0}, state="running")
    who = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
    status(made, "running", **who, paused=["t0001", "t0002"])
    seen = opened(stocked, "/studies/racing")
    page = seen.page
    expect(page.locator("#running-title")).to_have_text("1 trial under way, 2 paused")
    expect(page.locator("#running li")).to_have_count(1)
    expect(page.locator("#trial-table .state.paused")).to_have_count(2)
    status(made, "running", **who, paused=["t0002"])
    expect(page.locator("#running-title")).to_have_text("2 trials under way, 1 paused")
    status(made, "stopped")
    expect(page.locator("#running-title")).to_be_hidden()
    assert seen.faults() == []
    shutil.rmtree(stocked.store / "racing")


@pytest.fixture
def hostile(stocked: Served, head: BackgroundProcess) -> Iterator[Served]:
    """With studies whose every text, log included, was made to be executed."""
    store = Store.open(str(stocked.store))
    failure = Submission(HOSTILE, datetime.now(UTC), wanted="rest", failed=HOSTILE, priority=1)
    submissions.write(store.study("hostile"), failure)  # first, as the service does
    made = finished(stocked.store, "hostile", question=HOSTILE)
    about = {"node": HOSTILE, "device": HOSTILE, "git_commit": HOSTILE}
    failed: dict[str, Any] = {"state": "failed", "steps": 0, "error_class": HOSTILE, "error_text": HOSTILE}
    trial = made.trial(
        None,
        **{**failed, **about},
        versions=json.dumps({HOSTILE: "1"}),
        params=json.dumps({"ensemble.heads": HOSTILE, HOSTILE: 1}),
    )
    event = {"id": "e", "time": datetime.now(UTC), "trial": trial, "kind": HOSTILE}
    made.folder.append("events", [{**event, "details": json.dumps({HOSTILE: HOSTILE})}])
    status(made, "interrupted", why=HOSTILE)
    stopped = Made(stocked.store, "stopped", question=HOSTILE)
    status(stopped, "stopped", stop_reason=HOSTILE)
    broken = stocked.store / "broken" / "study.yaml"
    broken.parent.mkdir()
    broken.write_text(json.dumps({"name": "broken", HOSTILE: HOSTILE}))
    jobs = jobs_at(head.address, store.uri)
    jobs.submit("hostile", [sys.executable, "-c", f"print({HOSTILE!r})"], {})
    until(lambda: (job := jobs.find("hostile")) and job.status == "succeeded", what="its last word")
    until(lambda: stocked.state("hostile") == "failed", what="the failure")
    yield stocked
    for name in ("hostile", "stopped", "broken"):
        shutil.rmtree(stocked.store / name)


def test_hostile_texts_are_shown_and_never_executed(hostile: Served, opened: Open) -> None:
    seen = opened(hostile)
    page = seen.page

    def shows(selector: str, text: str = PLAIN) -> None:
        page.wait_for_selector(selector)
        assert text in seen.text(selector), selector

    shows("tr[data-study=hostile] small")
    shows("tr[data-study=hostile] .why")
    shows("tr[data-study=hostile] td[data-label=Owner]")
    shows("tr[data-study=stopped] .why")
    shows("tr[data-study=broken] .why", "<img src=x")
    known = page.locator("tr[data-study]").count()
    page.fill("#filter", "<script>window.hit=1</script>")
    expect(page.locator("#shown")).to_have_text(f"2 of {known}")

    page.click("tr[data-study=hostile] a")
    page.wait_for_selector("#report[data-version]")
    seen.drawn()
    for each in ("#question", "#about", "#reason", "tr[data-trial=t0028] .error", "#provenance"):
        shows(each)
    expect(page.locator("#log")).to_contain_text("<img src=x")
    page.click("tr[data-trial=t0028] a")
    expect(page.locator("#trial .events")).to_contain_text("<img src=x")
    for each in ("#trial .banner", "#trial .values", "#trial .events"):
        shows(each)
    assert page.locator("img, a[href^='javascript:']").count() == 0
    for name, place in (("stopped", "#problem"), ("broken", "#reason")):
        page.goto(f"{hostile.url}/studies/{name}")
        shows(place, "<img src=x")
        assert page.evaluate("window.hit === undefined")
    page.goto(f"{hostile.url}/studies/made?trial={quote(HOSTILE)}")
    expect(page.locator("#trial .banner")).to_have_text("There is no trial of that name in this study.")
    shows("#trial-title")
    page.goto(f"{hostile.url}/submit")
    page.fill("#yaml", json.dumps({"name": "x", HOSTILE: HOSTILE}))
    expect(page.locator("#check.fault")).to_be_visible()
    shows("#faults", "<img src=x")
    assert [each for each in seen.faults() if "404" not in each] == []


def test_a_token_is_asked_for_kept_for_the_tab_and_forgotten(tokens: Roles, opened: Open) -> None:
    service, given = tokens
    seen = opened(service, "/studies/none")
    page = seen.page
    expect(page.locator("#sign-in h1")).to_have_text("Sign in")
    expect(page.locator("#token")).to_be_focused()
    assert seen.text("#token-fault") == ""
    for wrong in ("letmein", given["revoked"]):
        page.fill("#token", wrong)
        page.keyboard.press("Enter")
        expect(page.locator("#token-fault")).to_contain_text("token")
        until(lambda: page.evaluate("sessionStorage.length") == 0, what="the refusal")
    page.fill("#token", f" {given['read']} ")
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_have_text("reader, read")
    expect(page.locator("h1")).to_have_text("There is no study of that name")
    page.click("#to-studies")
    expect(page.locator("#empty")).to_be_visible()
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    assert not any(given["read"] in url for url in seen.asked)

    page.click("#sign-out")
    expect(page.locator("#sign-in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0 and page.locator("#who").is_hidden()
    assert [each for each in seen.faults() if "Failed to load resource" not in each] == []


def signed_in(seen: Shown, token: str) -> Page:
    seen.page.fill("#token", token)
    seen.page.keyboard.press("Enter")
    expect(seen.page.locator("#who")).to_be_visible()
    return seen.page


def test_whoever_may_only_read_is_offered_nothing_else(tokens: Roles, opened: Open) -> None:
    service, given = tokens
    assert service.submit(text_of("admins")).status_code in (200, 201)
    page = signed_in(opened(service, "/studies/admins"), given["read"])
    expect(page.locator("#state")).to_have_text("queued")
    for each in ("#stop", "#resume", "#delete", "#to-submit"):
        expect(page.locator(each)).to_be_hidden()
    page.goto(f"{service.url}/submit")
    page.fill("#yaml", text_of("mine"))
    expect(page.locator("#check.good")).to_be_visible()
    assert page.is_disabled("#submit") and page.is_disabled("#plan")
    expect(page.locator("#submit-trouble")).to_have_text(
        "Your token may only read. Ask for one with the role submit."
    )
    page.click("#sign-out")
    expect(page.locator("#sign-in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0

    page = signed_in(opened(service, "/submit"), given["submit"])
    page.fill("#yaml", text_of("mine"))
    page.fill("#priority", "5")
    page.click("#submit:enabled")
    expect(page.locator("#submit-trouble")).to_contain_text("above 0 is for the role admin")
    page.fill("#priority", "-5")
    page.click("#submit:enabled")
    page.wait_for_url("**/studies/mine")
    expect(page.locator("#about")).to_contain_text("submitted by submiter")
    page.click("#stop")
    expect(page.locator("#state")).to_have_text("new")
    page.goto(f"{service.url}/studies/admins")
    expect(page.locator("#state")).to_have_text("queued")
    expect(page.locator("#stop")).to_be_hidden()


def test_a_study_is_deleted_only_by_its_name(stocked: Served, opened: Open) -> None:
    made = Made(stocked.store, "unwanted")
    until(lambda: stocked.http.get("/api/studies/unwanted").status_code == 200, what="the study")
    seen = opened(stocked, "/studies/unwanted")
    page = seen.page
    expect(page.locator("#resume")).to_have_text("Start …")
    page.click("#delete")
    for name in ("", "unwante", "made"):
        page.fill("#delete-name", name)
        assert page.is_disabled("dialog.ask .danger")
    page.fill("#delete-name", "unwanted")
    page.click("dialog.ask .danger")
    page.wait_for_url(f"{stocked.url}/")
    page.wait_for_selector("tr[data-study=made]")
    assert page.locator("tr[data-study=unwanted]").count() == 0 and not made.folder.exists()
    assert seen.faults() == []


def test_a_lost_connection_is_told_and_comes_back_by_itself(stocked: Served, opened: Open) -> None:
    Made(stocked.store, "passing")
    listed, shown = opened(stocked), opened(stocked, "/studies/made")
    listed.page.wait_for_selector("tr[data-study=passing]")
    shown.page.wait_for_selector("#report[data-version]")
    stocked.kill()
    for each in (listed, shown):
        expect(each.page.locator("#connection")).to_have_text("Connection lost, trying again.")
    shutil.rmtree(stocked.store / "passing")
    stocked.start()
    for each in (listed, shown):
        expect(each.page.locator("#connection")).to_be_hidden()
    expect(listed.page.locator("tr[data-study=passing]")).to_have_count(0)
    status(Made(stocked.store, "later"), "finished")
    expect(listed.page.locator("tr[data-study=later]")).to_be_visible()
    for each in (listed, shown):
        assert [text for text in each.faults() if "Failed to load resource" not in text] == []
