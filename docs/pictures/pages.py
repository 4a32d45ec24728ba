"""Pages of the pictures: the recorded quickstart study's report in a real Chromium."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps
from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

from docs.pictures.terminals import Mode

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COLOURS = 48  # enough for text and lines, and a third of the bytes
_EDGE = {"light": "#d0d7de", "dark": "#30363d"}
_HEADINGS = "h1, h2, h3, caption, th[scope=col], nav a, dt"


@dataclass(frozen=True)
class Shot:
    """A part of the report, from the top of one element to the bottom of another."""

    top: str  # a CSS selector
    bottom: str


SHOTS = {"page-answer": Shot("body", "#race")}
WIDTH, MARGIN = 1000, 24  # CSS pixels
SCALE = 2.0


@contextmanager
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"no browser: none of {', '.join(BROWSERS)} is in PATH; install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def take(started: Browser, report: Path, shot: Shot, theme: Mode) -> tuple[bytes, list[str]]:
    """The picture as PNG, and the headings that it shows."""
    context = started.new_context(
        color_scheme=theme,
        viewport={"width": WIDTH, "height": 900},
        device_scale_factor=SCALE,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn=yes]", state="attached")
        top = max(0, _box(page, shot.top)["y"] - MARGIN)
        last = _box(page, shot.bottom)
        height = round(last["y"] + last["height"] + MARGIN - top)
        png = page.screenshot(clip={"x": 0, "y": top, "width": WIDTH, "height": height}, full_page=True)
        return _small(png, theme), _headings(page, top, height)
    finally:
        context.close()


def _box(page: Page, selector: str) -> FloatRect:
    found = page.locator(selector).first.bounding_box(timeout=5_000)
    if found is None:
        raise SystemExit(f"the report has no visible {selector}; mend SHOTS in docs/pictures/pages.py")
    return found


def _headings(page: Page, top: float, height: float) -> list[str]:
    """The texts of headings between two heights of the page."""
    shown = []
    for each in page.locator(_HEADINGS).all():
        box, said = each.bounding_box(), " ".join(each.inner_text().split())
        if box and said and top <= box["y"] and box["y"] + box["height"] <= top + height:
            shown.append(said)
    return list(dict.fromkeys(shown))


def _small(png: bytes, theme: Mode) -> bytes:
    """The same picture with few colours, and an edge: a page may be as white as what it is shown on."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image = ImageOps.expand(image.crop((2, 2, image.width - 2, image.height - 2)), 2, _EDGE[theme])
    out = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()
