"""Failed logins of late, and who must wait for having too many of them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

Key = tuple[str, str]  # the client's address, and `Tokens.known_id` of what it presented


class Failures:
    """Recent failed logins: a caller with too many of them must wait. Safe to use from several threads.

    With the token's id in the key, one client behind a proxy does not shut out the others.
    """

    def __init__(
        self,
        most: int = 10,
        window_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        most_keys: int = 10_000,
    ) -> None:
        self._most, self._window_s, self._clock, self._most_keys = most, window_s, clock, most_keys
        self._times: OrderedDict[Key, deque[float]] = OrderedDict()  # the latest failures, oldest key first
        self._lock = threading.Lock()

    def note(self, key: Key) -> None:
        """Counts a failed login; one that was not even checked is not to be counted."""
        now = self._clock()
        with self._lock:
            times = self._times.setdefault(key, deque(maxlen=self._most))
            times.append(now)
            self._times.move_to_end(key)
            while len(self._times) > self._most_keys or self._is_over(now):
                self._times.popitem(last=False)

    def retry_after_s(self, key: Key) -> float | None:
        """How long no login is to be checked; None where the next may be."""
        with self._lock:
            times = self._times.get(key)
            if times is None or len(times) < self._most:
                return None
            left = times[0] + self._window_s - self._clock()
        return left if left > 0 else None

    def __len__(self) -> int:
        return len(self._times)

    def _is_over(self, now: float) -> bool:
        """Whether the key that failed longest ago no longer counts."""
        oldest = next(iter(self._times.values()))
        return oldest[-1] + self._window_s <= now
