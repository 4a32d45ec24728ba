"""A store that does not answer for a while: since when, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime


class Outage:
    """Put together from all who use the store: it lasts while any of them meets it, and is told once."""

    def __init__(self, tell: Callable[..., object]) -> None:
        self._tell, self._lock = tell, threading.Lock()
        self._met: dict[str, str] = {}  # by whom, and what they were told
        self._since = 0.0
        self.last: str | None = None  # what there is to say of the last one that is over

    @property
    def why(self) -> str | None:
        """Why the store cannot be used now."""
        return next(iter(self._met.copy().values()), None)

    def met(self, by: str, why: str) -> None:
        with self._lock:
            begins = not self._met
            self._met.setdefault(by, why)
            if begins:
                self._since = time.monotonic()
        if begins:
            self._tell("store_unreachable", why=why)

    def over(self, by: str) -> None:
        with self._lock:
            if self._met.pop(by, None) is None or self._met:
                return
            lasted_s = time.monotonic() - self._since
            until = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            self.last = f"the store did not answer for {lasted_s:.0f} s, until {until}; nothing was lost"
        self._tell("store_back", after_s=round(lasted_s, 1))
