"""A real Chromium, and what a page in it complains of and asks for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser of this machine; without one the test is skipped, and where CI runs it, it fails."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        missing = f"no browser: none of {', '.join(BROWSERS)} is in PATH"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(QUIET))
        yield browser
        browser.close()


class Shown:
    """A page as a browser shows it, and all that it complained of or asked for."""

    def __init__(self, page: Page, own: str) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        self._own = own  # how addresses begin of which it may ask
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        self.said.append(f"{message.type}: {message.text}")

    def drawn(self) -> None:
        """Waits for every figure."""
        self.page.wait_for_selector("html[data-drawn=yes]", state="attached")

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def faults(self) -> list[str]:
        """Its complaints, what it asked of others, and whether a name or text was executed."""
        hit = ["executed"] if self.page.evaluate("window.hit !== undefined") else []
        other = [url for url in self.asked if not url.startswith((self._own, "data:", "blob:"))]
        return self.said + other + hit

    def is_clean(self) -> bool:
        return self.faults() == []
