"""The pictures of README and the documentation show what there is today; `make pictures` makes them anew."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cbe.report.page.render import render
from cbe.store.folder import Store
from docs.pictures.record import RECORD
from docs.pictures.terminals import TERMINALS, THEMES, text

ROOT = Path(__file__).parent.parent.parent
PICTURES = ROOT / "docs/pictures"
PAGES: dict[str, list[str]] = json.loads((PICTURES / "pages.json").read_text("utf-8"))
MOST_BYTES = {".png": 150_000, ".svg": 60_000}


def files() -> set[Path]:
    return {path for path in PICTURES.iterdir() if path.suffix in MOST_BYTES}


def tight(text: str) -> str:
    """A text without spaces, which an SVG does not keep."""
    return "".join(text.split())


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", TERMINALS)
def test_a_terminal_shows_what_its_command_prints_today(name: str, theme: str) -> None:
    drawn = ElementTree.parse(PICTURES / f"{name}-{theme}.svg").iter("{http://www.w3.org/2000/svg}text")
    _title, *lines = ("".join(each.itertext()) for each in drawn)
    assert tight("".join(lines)) == tight(text(name)), "run `make pictures`"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_still_has_every_heading_that_its_picture_shows(name: str) -> None:
    page = render(Store.open(str(RECORD.parent)).study(RECORD.name))
    said = tight(html.unescape(re.sub(r"<[^>]+>", " ", page)))
    assert PAGES[name], "the picture shows nothing"
    assert [each for each in PAGES[name] if tight(each) not in said] == [], "run `make pictures`"


def test_every_picture_is_small_and_there_in_light_and_dark() -> None:
    names = {f"{name}-{theme}.svg" for name in TERMINALS for theme in THEMES}
    names |= {f"{name}-{theme}.png" for name in PAGES for theme in THEMES}
    assert {path.name for path in files()} == names
    assert {path.name for path in files() if path.stat().st_size > MOST_BYTES[path.suffix]} == set()


def test_every_picture_is_shown_and_every_picture_shown_is_there() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    shown = {name for each in texts for name in re.findall(r"pictures/([\w-]+\.(?:png|svg))", each)}
    assert shown == {path.name for path in files()}


def test_no_picture_asks_another_host_for_anything() -> None:
    asked = {path.name: re.findall(r"url\(|href", path.read_text("utf-8")) for path in PICTURES.glob("*.svg")}
    assert asked and not any(asked.values())
