"""A running study as lines: one for each trial that ends, and one of progress a minute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cbe.study.overview import ENDED
from cbe.words import clean, first_line, span

if TYPE_CHECKING:
    from cbe.study.progress import Progress

EVERY_S = 60.0


class Log:
    """Says what has happened since it was last asked."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._states = {row["trial"]: row["state"] for row in progress.rows()}
        self._told_s = 0.0
        self._halted: str | None = None
        self._problem: str | None = None

    def lines(self, now_s: float) -> Iterator[str]:
        """The new lines, `now_s` after the start."""
        ledger = self._progress.ledger
        if ledger.halted != self._halted:
            self._halted = ledger.halted
            yield f"stopping: {clean(ledger.halted)}; running trials keep their last checkpoint"
        for row in self._progress.rows():
            before, state = self._states.get(row["trial"]), row["state"]
            self._states[row["trial"]] = state
            if state != before and state != "running":
                yield self._ended(row)
        if ledger.recorder.problem != self._problem:
            self._problem = ledger.recorder.problem
            if self._problem:
                yield f"results cannot be written and are kept in memory: {clean(self._problem)}"
        if now_s - self._told_s >= EVERY_S:
            self._told_s = now_s
            yield self._so_far()

    def _ended(self, row: Mapping[str, Any]) -> str:
        trial, state = row["trial"], row["state"]
        if state == "infeasible":
            return f"{trial} infeasible: {first_line(row['error_text'])}"
        at = f"{trial} {state} at {row['step'] or 0}/{row['steps']}"
        if state == "failed":
            return f"{at}: {clean(row['error_class'])}: {first_line(row['error_text'])}"
        value = row["objective"]
        if value is None or not math.isfinite(value):
            return at
        return f"{at}: {self._metric} {value:.4g}"

    def _so_far(self) -> str:
        progress = self._progress
        running = progress.running
        if not running and progress.said:
            return clean(progress.said[-1])
        parts = [f"search {self._done('search')}/{progress.study.trials}"]
        if progress.confirm_total:
            parts.append(f"confirm {self._done('confirm')}/{progress.confirm_total}")
        parts.append(f"{len(running)} running")
        best, eta = progress.best, progress.eta_s
        if best:
            parts.append(f"best {self._metric} {best['objective']:.4g} ({best['trial']})")
        if eta:
            parts.append(f"{span(*eta)} left")
        return ", ".join(parts)

    def _done(self, role: str) -> int:
        return sum(row["state"] in ENDED for row in self._progress.rows(role))

    @property
    def _metric(self) -> str:
        return self._progress.study.objectives[0].metric
