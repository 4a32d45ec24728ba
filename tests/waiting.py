"""Waiting for what must come to hold. A module by itself: processes of trials import it, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def until(holds: Callable[[], Any], timeout_s: float = 120, what: str = "it") -> Any:
    """Waits for something to come to hold, and gives what it is."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} never came to hold"
        threading.Event().wait(0.1)
    return found
