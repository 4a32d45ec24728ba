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
from cbe.report.page.render import write_report
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
        write_report(folder, path)
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
    write_report(made.folder, path)
    context = browser.new_context(color_scheme="light", reduced_motion="reduce")
    yield Seen(context.new_page(), path)
    context.close()


def test_a_finished_study_shows_every_panel_and_asks_for_nothing(seen: Seen) -> None:
    assert seen.figures() == [
        *("intervals", "history", "curves", "importances", "parallel", "slices"),
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
    assert seen.text("h1") == answer.sentence
    first = seen.text(".ranking tbody tr:first-child")
    assert first.startswith(f"1 {answer.ranked[0].config_id} 3 6.40") and "p = 0.0" in first
    assert "Not used for selection" in seen.text("#answer")
    assert "search said" in seen.text(".ranking thead")


def test_every_figure_and_table_has_a_name_for_those_who_do_not_see_it(seen: Seen) -> None:
    labels = seen.page.eval_on_selector_all(".plot", "all => all.map(one => one.getAttribute('aria-label'))")
    assert len(labels) == 11 and all(len(label) > 20 for label in labels)
    assert seen.page.locator("table").count() == seen.page.locator("table > caption").count() == 4
    levels = seen.page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => Number(one.tagName[1]))")
    assert levels[0] == 1 and all(b - a <= 2 for a, b in pairwise(levels))


@pytest.mark.parametrize("width", [400, 800, 1440])
def test_the_page_never_scrolls_sideways(seen: Seen, width: int) -> None:
    seen.resize(width)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    wider = "all => all.filter(one => one.parentElement.clientWidth + 1 < one.clientWidth).length"
    assert seen.page.eval_on_selector_all(".main-svg", wider) == 0 and seen.is_clean()


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
    page.keyboard.type("Stopped, heads 8")
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


def test_a_click_on_a_mark_shows_its_trial(seen: Seen) -> None:
    seen.page.locator("#history").scroll_into_view_if_needed()
    seen.page.locator("#history .scatterlayer .trace.scatter .point").first.hover(force=True)
    seen.page.mouse.down()
    seen.page.mouse.up()
    seen.page.wait_for_selector("tr.marked")
    assert re.fullmatch(r"t\d{4}", str(seen.page.get_attribute("tr.marked", "data-trial")))


def test_the_copied_yaml_is_what_train_reads(seen: Seen, made: Made, tmp_path: Path) -> None:
    page = seen.page
    page.locator(".copy").first.click()
    page.wait_for_selector(".copy:has-text('Copied')")
    page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), {id: 'paste'}))")
    page.focus("#paste")
    page.keyboard.press("Control+V")
    pasted = tmp_path / "best.yaml"
    pasted.write_text(page.input_value("#paste"), "utf-8")
    page.evaluate("document.getElementById('paste').remove()")
    answer = best(made.folder)
    assert pasted.read_text("utf-8").strip() == answer.to_yaml().strip()
    assert read_config(TrainConfig, pasted).to_plain() == answer.ranked[0].config


def test_without_clipboard_and_storage_the_yaml_is_selected_and_the_theme_still_changes(
    opened: Open, tmp_path: Path
) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base")
    refuse = """
      Object.defineProperty(navigator, 'clipboard', {value: undefined});
      Object.defineProperty(window, 'localStorage', {get() { throw new Error('none'); }});
      document.execCommand = () => false;
    """
    seen = opened(made.folder, refuse)
    seen.page.locator(".copy").first.click()
    assert seen.text(".copy >> nth=0") == "Selected: press Ctrl-C"
    chosen = seen.page.evaluate("getSelection().toString()")
    assert chosen.strip() == best(made.folder).to_yaml().strip()
    seen.page.click("#theme")
    assert seen.page.get_attribute("html", "data-theme") == "light" and seen.is_clean()


def test_hostile_texts_are_shown_and_never_executed(opened: Open, tmp_path: Path) -> None:
    made = finished(tmp_path, question=HOSTILE)
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
    assert seen.text(".banner").startswith("Running: as of ") and "1 trial under way" in seen.text(".banner")
    assert "not yet confirmed" in seen.text("h1") and "1 running" in seen.text(".facts")
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
    status(made, "halted", halted="the same error three times")
    seen = opened(made.folder)
    assert seen.text("h1") == "No answer yet" and "no room for 4" in seen.text("#answer")
    assert "the same error three times" in seen.text(".banner")
    assert seen.figures() == [] and "OutOfMemory no room for 3" in seen.text("#trials") and seen.is_clean()
    assert seen.page.locator("#search").count() == 0


def test_several_objectives_have_their_front(opened: Open, tmp_path: Path) -> None:
    made = finished(tmp_path, objective=["validation_error", "macs"])
    seen = opened(made.folder)
    front = seen.page.evaluate(
        "document.getElementById('pareto').data.find(each => each.name === 'Pareto front')"
    )
    answer = best(made.folder)
    assert sorted(front["y"]) == sorted(
        round(100 * point.values["validation_error"], 6) for point in answer.front
    )
    assert seen.empty() == [] and seen.is_clean()


def test_one_run_has_no_interval_and_the_page_says_so(opened: Open, tmp_path: Path) -> None:
    made = Made(tmp_path, confirm={"runs": 0})
    made.trial(0.2, preset="base")
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0})
    status(made, "finished")
    seen = opened(made.folder)
    assert "n = 1: no interval can be given" in seen.text("h1")
    assert seen.text(".ranking tbody tr:first-child").count("no interval can be given") == 1
    assert seen.empty() == [] and seen.is_clean()


def test_after_a_figure_that_cannot_be_drawn_the_others_are_and_the_theme_still_changes(
    opened: Open, tmp_path: Path
) -> None:
    made = finished(tmp_path)
    seen = opened(made.folder)
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


@pytest.mark.parametrize("width", [400, 800, 1440])
def test_titles_of_confusion_matrices_stand_clear_of_each_other(seen: Seen, width: int) -> None:
    seen.resize(width)
    boxes = seen.page.eval_on_selector_all(
        "#confusions .annotation-text-g",
        "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])",
    )
    frame = seen.page.eval_on_selector("#confusions", "one => one.getBoundingClientRect().top")
    assert len(boxes) == 6 and min(top for _, top, _, _ in boxes) >= frame
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
