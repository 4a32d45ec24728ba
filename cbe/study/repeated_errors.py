"""When the same error ends so much of what runs that a study had better stop."""

from __future__ import annotations

from collections import deque

# Of as many of the last trials as this, or, where more run at once, of half as many as run.
FEWEST_ENDS = 3
OF_AT_ONCE = 1 / 2
SHARE = 0.9  # of these must have ended by it


class RepeatedErrors:
    """The errors of the last trials that have ended."""

    def __init__(self) -> None:
        self._ends: deque[str | None] = deque()  # None where a trial ended well
        self._most_at_once = 0

    def running(self, count: int) -> None:
        """So many trials run at once."""
        self._most_at_once = max(self._most_at_once, count)

    def ended(self, error_class: str | None) -> str | None:
        """A trial has ended; says how many of the last ones did so, where they are too many."""
        window = max(FEWEST_ENDS, int(OF_AT_ONCE * self._most_at_once))
        self._ends.append(error_class)
        while len(self._ends) > window:
            self._ends.popleft()
        alike = self._ends.count(error_class)
        if error_class is None or len(self._ends) < window or alike < SHARE * window:
            return None
        return f"{alike} of the last {window} trials ended with {error_class}"
