"""Windows of a real browser, before a service that has something to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser import Shown
from tests.made import finished
from tests.service.conftest import Served
from tests.service.on_ray.windows import MS, Open
from tests.waiting import until


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens a path of a service in a window of its own, in which nobody is signed in."""
    contexts = []

    def opened(service: Served, path: str = "/", **options: Any) -> Shown:
        contexts.append(browser.new_context(**{"reduced_motion": "reduce", **options}))
        contexts[-1].set_default_timeout(MS)
        shown = Shown(contexts[-1].new_page(), f"{service.url}/")
        shown.page.goto(service.url + path)
        return shown

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def stocked(served: Served) -> Served:
    """A service on the cluster, whose store has a finished study."""
    finished(served.store)
    # The service may look while the study is being written. Its status is written last and read first.
    until(
        lambda: served.http.get("/api/studies/made").json().get("state") == "finished", what="the whole study"
    )
    return served
