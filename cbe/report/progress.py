"""How far a study is, as its driver last said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cbe.spec.terms import Role
from cbe.store.rows import Row
from cbe.store.states import COUNTED, Status
from cbe.words import to_come


@dataclass(frozen=True)
class Progress:
    """How the study stood when it was read."""

    state: str = "new"  # running, finished, stopped, interrupted, new
    reason: str | None = None
    heard: datetime | None = None
    elapsed_s: float | None = None
    searching: bool = False  # while it runs: whether trials of the search are still to come
    trials: int = 0  # of the search
    confirmations: int = 0  # runs, at most

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def halted(self) -> bool:
        """Whether it ended before all was done."""
        return self.state in ("stopped", "interrupted")

    def to_come(self, rows: Iterable[Row]) -> str | None:
        """What a study that runs has still to do; None where nothing is left, or nobody does it."""
        if not self.running:
            return None
        ended: dict[Role, int] = {"search": 0, "confirm": 0}
        for row in rows:
            ended[row["role"]] += row["state"] in COUNTED
        trials, runs = self.trials - ended["search"], self.confirmations - ended["confirm"]
        return to_come(max(0, trials), max(0, runs), self.searching)


def read_progress(last: Status) -> Progress:
    """What the study's driver last said of itself; `new` where none has spoken yet."""
    return Progress(
        state=last.state,
        reason=last.why,
        heard=last.heard,
        elapsed_s=last.elapsed_s or None,
        searching=last.plain.get("stage") == "search",
        trials=_count(last.plain.get("trials")),
        confirmations=_count(last.plain.get("confirmations")),
    )


def _count(said: Any) -> int:
    return said if isinstance(said, int) and said > 0 else 0
