"""The report in a real browser: what it shows, asks for and answers to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from cbe.report.best import best
from cbe.report.page.render import render
from cbe.spec import TrainConfig, read_config
from cbe.store.folder import StudyFolder
from tests.browser import Shown
from tests.made import HOSTILE, Made, finished, status


class Seen(Shown):
    """A report that was opened from its file, and is drawn."""

    def __init__(self, page: Page, path: Path) -> None:
        super().__init__(page, path.as_uri())
        page.goto(path.as_uri())
        self.drawn()

    def resize(self, width: int) -> None:
        """Gives the window another width, and waits for every figure to take it up."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.plot')].every(one => one.dataset.width == one.clientWidth)"
        )
        self.drawn()

    def figures(self) -> list[str]:
        found: list[str] = self.page.eval_on_selector_all(".plot", "each => each.map(one => one.id)")
        return found

    def empty(self) -> list[str]:
        """The figures in which nothing is drawn."""
        inked = "path.js-line, path.point, .points path, .bars path, .heatmaplayer image"
        return [name for name in self.figures() if not self.page.locator(f"#{name}").locator(inked).count()]


Open = Callable[..., Seen]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(folder: StudyFolder, before: str = "", **options: Any) -> Seen:
        path = tmp_path / "report.html"
        path.write_text(render(folder), "utf-8")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        if before:
            page.add_init_script(before)
        return Seen(page, path)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return finished(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def seen(browser: Browser, made: Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The finished study's page, for tests that leave it as they found it."""
    path = tmp_path_factory.mktemp("page") / "made.html"
    path.write_text(render(made.folder), "utf-8")
    context = browser.new_context(color_scheme="light", reduced_motion="reduce")
    yield Seen(context.new_page(), path)
    context.close()


def test_a_finished_study_shows_every_panel_and_asks_for_nothing(seen: Seen) -> None:
    assert seen.figures() == [
        *("race", "history", "curves", "importances", "parallel", "slices", "intervals"),
        *("pseudo-labels", "ablation", "confusions", "heads", "lemma"),
    ]
    assert seen.empty() == [] and seen.is_clean()
    assert seen.page.locator(".banner:not(noscript *)").count() == 0
    tools = seen.page.eval_on_selector_all(
        "#history .modebar-btn", "all => all.map(one => one.dataset.title)"
    )
    assert len(tools) > 3 and not [each for each in tools if "Share" in each]  # which would send it elsewhere


def test_the_answer_comes_first_in_its_own_words(seen: Seen, made: Made) -> None:
    answer = best(made.folder, 5)
    assert seen.text("h1") == answer.headline and seen.text("#figures") == answer.sentence
    first = seen.text(".ranking tbody tr:first-child")
    assert first.startswith("1 t0006 3 6.40 5.89 to 7.11") and ", better" in first
    assert answer.ranked[0].config_id in str(seen.page.get_attribute(".ranking .first th", "title"))
    assert not re.search(r"\b[0-9a-f]{12}\b", seen.text("main"))
    assert "Not used for selection" in seen.text("#answer")
    assert "in the search, %" in seen.text(".ranking thead")


@pytest.mark.parametrize("width", [400, 800, 1440])
def test_at_every_width_all_that_is_too_wide_says_so_and_titles_stand_clear(seen: Seen, width: int) -> None:
    seen.resize(width)
    page = seen.page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wider = "all => all.filter(one => one.parentElement.clientWidth + 1 < one.clientWidth).length"
    assert page.eval_on_selector_all(".main-svg", wider) == 0 and seen.is_clean()
    cues = page.eval_on_selector_all(".scroll", "all => all.map(one => one.dataset.scrolls || '')")
    if width == 400:
        assert (cues[0], cues[2]) == ("sideways", "both")
    if width == 1440:
        assert cues == ["", "", "down", ""]
    boxes = page.eval_on_selector_all(
        "#confusions .annotation-text-g",
        "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])",
    )
    frame = page.eval_on_selector("#confusions", "one => one.getBoundingClientRect().top")
    assert len(boxes) == 6 and min(top for _, top, _, _ in boxes) >= frame
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_the_search_begins_on_the_first_screen_and_the_yaml_is_folded(seen: Seen) -> None:
    seen.resize(1440)
    assert seen.page.evaluate("document.getElementById('search').getBoundingClientRect().top") < 700
    assert seen.page.locator(".yaml").count() == 3 and seen.page.locator(".yaml[open]").count() == 0


def test_buttons_stay_where_they_are_when_they_are_pressed(seen: Seen) -> None:
    seen.resize(1440)
    page = seen.page

    def places() -> list[Any]:
        boxes = "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.width])"
        found: list[Any] = page.eval_on_selector_all("#theme, #trial-table th button", boxes)
        return found

    before = places()
    once = ("#theme", "th[data-key=objective] button", "th[data-key=objective] button")
    for button in (*once, "#theme", "#theme", "th[data-key=trial] button"):  # and back
        page.click(button)
        assert places() == before
    seen.drawn()


def test_every_figure_and_table_has_a_name_for_those_who_do_not_see_it(seen: Seen) -> None:
    labels = seen.page.eval_on_selector_all(".plot", "all => all.map(one => one.getAttribute('aria-label'))")
    assert len(labels) == 12 and all(len(label) > 20 for label in labels)
    assert seen.page.locator("table").count() == seen.page.locator("table > caption").count() == 4
    levels = seen.page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => Number(one.tagName[1]))")
    assert levels[0] == 1 and all(b - a <= 2 for a, b in pairwise(levels))


def test_trials_are_sorted_by_the_keyboard_and_those_without_a_value_come_last(seen: Seen) -> None:
    page = seen.page
    column = "all => all.map(one => one.cells[5].textContent)"
    page.locator("th[data-key=objective] button").focus()
    for way, sign in (("ascending", 1), ("descending", -1)):
        page.keyboard.press("Enter")
        *values, last = page.eval_on_selector_all("#trial-table tbody tr", column)
        assert page.get_attribute("th[data-key=objective]", "aria-sort") == way and last == "–"
        numbers = [sign * float(value) for value in values]
        assert len(numbers) == 27 and numbers == sorted(numbers)
    page.locator("th[data-key=trial] button").press("Space")
    names = page.eval_on_selector_all("#trial-table tbody tr", "all => all.map(one => one.dataset.trial)")
    assert names == sorted(names) and page.locator("[aria-sort]").count() == 1


def test_the_filter_shows_the_trials_that_have_all_that_commas_part(seen: Seen) -> None:
    page = seen.page
    page.focus("#filter")
    page.keyboard.type("Pruned, heads 8")
    assert seen.text("#shown") == "1 of 28" and page.locator("#trial-table tbody tr:visible").count() == 1
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    assert seen.text("#shown") == "28 of 28"


def test_the_theme_goes_from_auto_to_light_and_dark_and_the_figures_with_it(seen: Seen) -> None:
    page = seen.page

    def ink() -> tuple[str, str, str]:
        seen.drawn()
        line = "getComputedStyle(document.querySelector('#history .js-line')).stroke"
        tick = "getComputedStyle(document.querySelector('#history .xtick text')).fill"
        return tuple(page.evaluate(each) for each in ("getComputedStyle(document.body).color", line, tick))  # type: ignore[return-value]

    light = ink()
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("#lemma[data-theme=dark]")
    dark = ink()
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page.focus("#theme")
    for name, expected in (("light", light), ("dark", dark)):
        page.keyboard.press("Enter")
        page.wait_for_selector(f"#lemma[data-theme={name}]")
        assert ink() == expected and seen.text("#theme") == f"Theme: {name}"
    page.emulate_media(color_scheme="light")
    page.keyboard.press("Enter")
    assert seen.text("#theme") == "Theme: auto" and ink() == light and seen.is_clean()


def test_after_a_figure_that_cannot_be_drawn_the_others_are_and_the_theme_still_changes(seen: Seen) -> None:
    seen.page.evaluate(
        """() => {
          const react = Plotly.react;
          let faults = 1;
          Plotly.react = (...all) => faults-- > 0 ? Promise.reject(new Error('once')) : react(...all);
        }"""
    )
    for theme in ("light", "dark"):
        seen.page.click("#theme")
        seen.page.wait_for_selector(f"#lemma[data-theme={theme}]")
    seen.drawn()
    assert seen.said == ["once"] and seen.page.locator("#intervals[data-theme=dark]").count() == 1
    seen.page.click("#theme")
    seen.page.wait_for_selector("#lemma[data-theme=auto]")
    seen.said.clear()


def test_a_click_on_a_mark_shows_its_trial(seen: Seen) -> None:
    seen.page.locator("#history").scroll_into_view_if_needed()
    seen.page.locator("#history .scatterlayer .trace.scatter .point").first.hover(force=True)
    seen.page.mouse.down()
    seen.page.mouse.up()
    seen.page.wait_for_selector("tr.marked")
    assert re.fullmatch(r"t\d{4}", str(seen.page.get_attribute("tr.marked", "data-trial")))


def test_the_copied_yaml_is_what_train_reads(seen: Seen, made: Made, tmp_path: Path) -> None:
    page = seen.page
    page.locator(".yaml summary").first.click()
    page.locator(".copy").first.click()
    page.wait_for_selector(".copy:has-text('Copied')")
    page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), {id: 'paste'}))")
    page.focus("#paste")
    page.keyboard.press("Control+V")
    pasted = tmp_path / "best.yaml"
    pasted.write_text(page.input_value("#paste"), "utf-8")
    page.evaluate("document.getElementById('paste').remove()")
    page.locator(".yaml summary").first.click()
    answer = best(made.folder)
    assert pasted.read_text("utf-8").strip() == answer.to_yaml().strip()
    assert read_config(TrainConfig, pasted).to_plain() == answer.ranked[0].config


def test_one_run_has_no_interval_and_without_clipboard_and_storage_its_yaml_is_selected(
    opened: Open, tmp_path: Path
) -> None:
    made = Made(tmp_path, confirm={"runs": 0})
    made.trial(0.2, preset="base")
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0})
    status(made, "finished")
    refuse = """
      Object.defineProperty(navigator, 'clipboard', {value: undefined});
      Object.defineProperty(window, 'localStorage', {get() { throw new Error('none'); }});
      document.execCommand = () => false;
    """
    seen = opened(made.folder, refuse)
    assert "n = 1: no interval can be given" in seen.text("#figures")
    assert seen.text(".ranking tbody tr:first-child").count("no interval can be given") == 1
    seen.page.locator(".yaml summary").first.click()
    seen.page.locator(".copy").first.click()
    assert seen.text(".copy >> nth=0") == "Selected: press Ctrl-C"
    chosen = seen.page.evaluate("getSelection().toString()")
    assert chosen.strip() == best(made.folder).to_yaml().strip()
    seen.page.click("#theme")
    assert seen.page.get_attribute("html", "data-theme") == "light"
    assert seen.empty() == [] and seen.is_clean()


def test_hostile_texts_are_never_executed_and_several_objectives_have_their_front(
    opened: Open, tmp_path: Path
) -> None:
    made = finished(tmp_path, question=HOSTILE, objective=["validation_error", "macs"])
    made.trial(
        None,
        {"ensemble.heads": 6, "loss.weights.lb": 1.1},
        **{"state": "failed", "steps": 0, "error_class": f"Odd{HOSTILE}", "error_text": HOSTILE},
        **{"node": HOSTILE, "device": HOSTILE, "git_commit": HOSTILE},
        versions=json.dumps({HOSTILE: HOSTILE}),
    )
    status(made, "interrupted", why=HOSTILE)
    seen = opened(made.folder)
    plain = " ".join(HOSTILE.split())
    assert seen.text(".question") == plain
    assert plain in seen.text("tr[data-trial=t0028] .error") and plain in seen.text(".banner")
    assert seen.text("footer").count("<img src=x") == 5
    seen.page.evaluate(
        """() => {
          const traces = document.getElementById('history').data;
          const curve = traces.findIndex(each => each.name === 'no value');
          const last = traces[curve].x.length - 1;
          Plotly.Fx.hover('history', [{curveNumber: curve, pointNumber: last}], ['xy2']);
        }"""
    )
    front = seen.page.evaluate(
        "document.getElementById('pareto').data.find(each => each.name === 'Pareto front')"
    )
    errors = [100 * point.values["validation_error"] for point in best(made.folder).front]
    assert sorted(front["y"]) == sorted(round(error, 6) for error in errors) and seen.empty() == []
    said = str(seen.page.text_content("#history .hoverlayer"))
    assert "<img src=x" in said and "<a href=" in said  # of which plotly would make a link
    assert seen.page.locator("img, .hoverlayer a").count() == 0 and seen.is_clean()


def test_a_running_study_says_so_and_shows_what_there_is(opened: Open, tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base")
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0})
    made.trial(0.3, {"ensemble.heads": 5, "loss.weights.lb": 2.0}, state="running")
    status(made, "running")
    seen = opened(made.folder)
    assert seen.text(".banner").startswith("Running: 1 trial under way as of ")
    seen.page.locator(".about summary").click()
    assert seen.text("h1").startswith("So far: ") and "1 running" in seen.text(".facts")
    assert {"history", "curves"} <= set(seen.figures()) and seen.empty() == [] and seen.is_clean()


def test_a_study_with_nothing_but_failures_shows_them_and_no_figure(opened: Open, tmp_path: Path) -> None:
    made = Made(tmp_path)
    for heads in (3, 4):
        made.trial(
            None,
            {"ensemble.heads": heads, "loss.weights.lb": 1.0},
            **{
                "state": "failed",
                "steps": 0,
                "error_class": "OutOfMemory",
                "error_text": f"no room for {heads}",
            },
        )
    status(made, "stopped", stop_reason="the same error three times")
    seen = opened(made.folder)
    assert seen.text("h1") == "No answer yet" and "no room for 4" in seen.text("#answer")
    assert "the same error three times" in seen.text(".banner")
    assert seen.figures() == [] and "OutOfMemory no room for 3" in seen.text("#trials") and seen.is_clean()
    assert seen.page.locator("#search").count() == 0


def test_a_figure_that_scrolls_sideways_can_be_reached_by_the_keyboard(seen: Seen) -> None:
    page = seen.page
    page.set_viewport_size({"width": 250, "height": 900})
    page.wait_for_selector(".frame[tabindex='0']:has(#parallel)")
    assert page.get_attribute(".frame:has(#parallel)", "role") == "region"
    assert (
        page.get_attribute(".frame:has(#parallel)", "aria-label")
        == "All parameters together: scrolls sideways"
    )
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_selector(".frame:not([tabindex]):has(#parallel)")
    seen.drawn()
