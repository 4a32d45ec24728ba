"""The page without a mouse, in the dark, on a narrow screen: all is named, reached and in its place."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.service.conftest import Served
from tests.service.on_ray.windows import Open, drawn

TO_BE_NAMED = {
    *("button", "link", "textbox", "searchbox", "combobox", "spinbutton", "progressbar", "image", "img"),
    *("dialog", "table", "heading", "region", "navigation", "DisclosureTriangle"),
}

OUTLINED = """() => {
  const around = document.activeElement.closest('.editor, .file');
  return [document.activeElement, around].filter(Boolean).map((one) => getComputedStyle(one))
    .some(({ outlineStyle, outlineWidth }) => outlineStyle !== 'none' && parseFloat(outlineWidth) > 1);
}"""

TWICE = """() => {
  const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
  return ids.filter((id, at) => ids.indexOf(id) < at);
}"""


def focused(page: Page, selector: str) -> bool:
    return bool(page.evaluate("selector => document.activeElement.matches(selector)", selector))


def nameless(page: Page) -> list[str]:
    """Controls, parts and pictures of which those who do not see them are told nothing."""
    cdp = page.context.new_cdp_session(page)
    nodes = {each["nodeId"]: each for each in cdp.send("Accessibility.getFullAXTree")["nodes"]}
    cdp.detach()

    def role(node: dict[str, Any] | None) -> str:
        return str(node["role"]["value"]) if node and not node["ignored"] else ""

    found = [each for each in nodes.values() if role(each) in TO_BE_NAMED]
    assert len(found) > 4
    return [
        role(each)
        for each in found
        if not each.get("name", {}).get("value", "").strip()
        and role(nodes.get(each.get("parentId", ""))) != "button"  # whose picture needs no name
    ]


def is_in_order(page: Page) -> None:
    """What every page has for those who listen to it."""
    assert nameless(page) == []
    assert page.get_attribute("html", "lang") == "en" and page.title().endswith("CBE Studies")
    assert page.locator("h1:visible").count() == page.locator("main").count() == 1
    assert page.evaluate(TWICE) == []


def tab_to(page: Page, selector: str) -> None:
    """Presses Tab until a place is reached; wherever it stops on the way can be seen."""
    for _ in range(200):
        page.keyboard.press("Tab")
        assert page.evaluate(OUTLINED), page.evaluate("document.activeElement.outerHTML.slice(0, 300)")
        if focused(page, selector):
            return
    raise AssertionError(f"{selector} cannot be reached")


def test_a_study_and_its_trial_are_reached_and_left_by_the_keyboard(stocked: Served, opened: Open) -> None:
    seen = opened(stocked)
    page = seen.page
    page.wait_for_selector("tr[data-study=made]")
    is_in_order(page)
    page.keyboard.press("Tab")
    assert focused(page, ".skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to(page, "tr[data-study=made] a")
    page.keyboard.press("Enter")
    page.wait_for_selector("#report[data-version]")
    seen.drawn()
    is_in_order(page)
    tab_to(page, "#trial-table a")
    page.keyboard.press("Enter")
    drawn(seen, "t0000")
    assert focused(page, "#trial-title")
    is_in_order(page)
    tab_to(page, "#close-trial")
    page.keyboard.press("Enter")
    expect(page.locator("#trial")).to_be_hidden()
    expect(page.locator("tr[data-trial=t0000] a")).to_be_focused()
    page.go_forward()
    drawn(seen, "t0000")
    page.go_back()
    expect(page.locator("#trial")).to_be_hidden()
    page.click("#resume")
    is_in_order(page)
    page.keyboard.press("Escape")
    expect(page.locator("#resume")).to_be_focused()
    page.goto(f"{stocked.url}/submit")
    page.click("#example")
    page.wait_for_selector("#check.good")
    is_in_order(page)
    tab_to(page, "#submit")
    assert seen.faults() == []


def test_the_page_has_a_dark_and_a_light_theme_and_never_scrolls_sideways(
    stocked: Served, opened: Open
) -> None:
    seen = opened(stocked, color_scheme="light")
    page = seen.page

    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    page.emulate_media(color_scheme="dark")
    dark = ground()
    assert light != dark
    for name, expected in (("light", light), ("dark", dark)):
        page.click("#theme")
        assert seen.text("#theme") == f"Theme: {name}" and ground() == expected
    page.emulate_media(color_scheme="light")
    waits = {
        "/": "tr[data-study]",
        "/submit": "#check",
        "/docs": "#docs .opblock-summary-description",
        "/studies/made?trial=t0004": "#trial-errors .js-line",
    }
    for path, selector in waits.items():
        page.goto(stocked.url + path)
        page.wait_for_selector(selector)
        assert ground() == dark  # is kept
        for width in (360, 800, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") == width
    assert seen.faults() == []
