"""What is done in a window of the browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser import Shown

MS = 120_000  # other tests may have the cores

expect.set_options(timeout=MS)

Open = Callable[..., Shown]


def drawn(seen: Shown, trial: str) -> None:
    """Waits for a trial's curves."""
    expect(seen.page.locator("#trial[open] #trial-title")).to_have_text(trial)
    expect(seen.page.locator("#trial-errors .js-line").first).to_be_visible()
    seen.drawn()
