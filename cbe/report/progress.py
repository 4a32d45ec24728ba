"""How far a study is, as its driver last said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cbe.configs import Role, Row, shown_state
from cbe.store.folder import StudyFolder
from cbe.words import to_come

_STATUS = "status.json"
_SILENT_S = 20.0  # a driver speaks every two seconds
_ENDED = ("completed", "pruned", "failed")


@dataclass(frozen=True)
class Progress:
    """How the study stood when it was read."""

    state: str = "new"  # running, silent, finished, stopped, interrupted, new
    why: str | None = None
    heard: datetime | None = None
    elapsed_s: float | None = None
    searching: bool = False  # while it runs: whether trials of the search are still to come
    trials: int = 0  # of the search
    confirmations: int = 0  # runs, at most
    paused: frozenset[str] = frozenset()  # trials that waited for the scheduler

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def halted(self) -> bool:
        """Whether it ended before all was done."""
        return self.state in ("stopped", "interrupted", "silent")

    def state_of(self, row: Row) -> str:
        """A trial's state as a reader sees it."""
        return shown_state(row, alive=self.running, paused=self.paused)

    def to_come(self, rows: Iterable[Row]) -> str | None:
        """What a study that runs has still to do; None where nothing is left, or nobody does it."""
        if not self.running:
            return None
        ended: dict[Role, int] = {"search": 0, "confirm": 0}
        for row in rows:
            ended[row["role"]] += row["state"] in _ENDED
        trials, runs = self.trials - ended["search"], self.confirmations - ended["confirm"]
        return to_come(max(0, trials), max(0, runs), self.searching)


def read_progress(folder: StudyFolder, now: datetime) -> Progress:
    """What the study's driver last said of itself; `new` where none has spoken yet."""
    content = folder.read(_STATUS)
    try:
        plain: dict[str, Any] = json.loads(content) if content else {}
        heard = datetime.fromtimestamp(float(plain["beat"]), UTC) if "beat" in plain else None
    except (ValueError, TypeError, OverflowError):
        plain, heard = {}, None
    state = str(plain.get("state", "new"))
    if state == "running" and (heard is None or (now - heard).total_seconds() > _SILENT_S):
        state = "silent"
    why, elapsed = plain.get("stop_reason") or plain.get("why"), plain.get("elapsed_s")
    paused = plain.get("paused")
    return Progress(
        state=state,
        why=str(why) if why else None,
        heard=heard,
        elapsed_s=float(elapsed) if isinstance(elapsed, int | float) else None,
        searching=plain.get("stage") == "search",
        trials=_count(plain.get("trials")),
        confirmations=_count(plain.get("confirmations")),
        paused=frozenset(map(str, paused)) if isinstance(paused, list) else frozenset(),
    )


def _count(said: Any) -> int:
    return said if isinstance(said, int) and said > 0 else 0
