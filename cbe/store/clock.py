"""Numbers that grow with time: they order revisions, and the names of files."""

from __future__ import annotations

import threading
import time

_lock = threading.Lock()
_last = 0


def tick() -> int:
    """Nanoseconds since 1970, larger at every call within a process."""
    global _last
    with _lock:
        _last = max(_last + 1, time.time_ns())
        return _last


def catch_up(seen: int) -> None:
    """Lets the next tick be later than one seen, which a machine with a faster clock may have given."""
    global _last
    with _lock:
        _last = max(_last, seen)
