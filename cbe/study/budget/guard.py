"""What a study may still spend, whether another trial fits, and what is reserved for the confirmation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Protocol

from cbe.store.rows import Row
from cbe.study.assignment import Assignment
from cbe.study.ledger import Ledger

STOP_S = 0.1  # that a trial takes to hear of the end and to keep a checkpoint
MOST_RESERVED = 0.5  # of a limit, however long the confirmation may take


class Overhead(Protocol):
    """What machines cost beyond the trials on them, in seconds of a trial's place."""

    @property
    def idle_s(self) -> float:
        """So far, in all starts of the study."""

    @property
    def tail_s(self) -> float:
        """What will be idle until the machines that are there have gone."""

    @property
    def start_s(self) -> float:
        """What another trial waits for a machine of its own; 0 where a place is free."""


class NoOverhead:
    """One machine that is there anyway."""

    idle_s = tail_s = start_s = 0.0


class BudgetGuard:
    """Holds the limits of a study's budget against what its trials and their machines have cost."""

    def __init__(
        self,
        ledger: Ledger,
        overhead: Overhead | None = None,
        elapsed_s: Callable[[], float] = lambda: 0.0,
        concurrent: int = 1,
    ) -> None:
        """`elapsed_s` is the study's time by the clock, in which `concurrent` trials run at once."""
        self._ledger, self._overhead, self._grows = ledger, overhead or NoOverhead(), overhead is not None
        self._elapsed_s, self._concurrent = elapsed_s, concurrent

    @property
    def limits(self) -> dict[str, float]:
        """Those that are of cards and money."""
        given = self._ledger.study.budget
        return {name: limit for name in self._price(0.0) if (limit := getattr(given, name)) is not None}

    def _price(self, seconds: float) -> dict[str, float]:
        return self._ledger.price(seconds)

    @property
    def _spent_s(self) -> float:
        return self._ledger.trials_s + self._overhead.idle_s

    @property
    def idle(self) -> dict[str, float]:
        """What machines have cost beyond the trials on them."""
        return self._price(self._overhead.idle_s)

    def reached(self) -> str | None:
        """The limit that is spent once trials have stopped and machines gone; None while there is room."""
        if not self.limits:
            return None
        used = self._price(self._spent_s + self._overhead.tail_s + STOP_S * self._ledger.busy)
        over = (name for name, limit in self.limits.items() if used[name] >= limit)
        return next((f"budget.{name} of {self.limits[name]:g} is spent" for name in over), None)

    def refuses(self, assignment: Assignment | None) -> str | None:
        """Why a trial may not start: what it takes at most does not fit beside what runs; None where it does.

        Nothing is known of the time a trial takes until one has reported; the limit itself ends the first.
        Where each brings a machine with it, the others wait for that one.
        """
        if not self.limits:
            return None
        step_s = max(self._paces(), default=0.0)
        if not step_s:
            first = not (self._ledger.busy or self._ledger.waiting)
            return None if first or not self._grows else "the first trial has not told its pace yet"
        upper_s = step_s * _steps_left(self._ledger, assignment) + self._overhead.start_s
        taken_s = self._spent_s + self._overhead.tail_s + step_s * self._steps_to_come()
        for name, limit in self.limits.items():
            left, wanted = limit - self._price(taken_s)[name], self._price(upper_s)[name]
            if wanted > left:
                return (
                    f"budget.{name} of {limit:g} holds no other trial: {max(left, 0):.3g} is left, "
                    f"and one takes up to {wanted:.3g}"
                )
        return None

    def keeps(self, runs: int) -> str | None:
        """Why the search may start no other trial: so many runs of the confirmation need what is left.

        Runs take as long as is usual so far. None while there is room, and before a trial has told its pace.
        """
        paces = self._paces()
        if not paces or not runs:
            return None
        budget, step_s = self._ledger.study.budget, median(paces)
        to_come_s, run_s = step_s * self._steps_to_come(), step_s * self._ledger.study.training.steps
        taken = self._in_limits(
            self._spent_s + self._overhead.tail_s + to_come_s,
            self._elapsed_s() + to_come_s / self._concurrent,
        )
        wanted = self._in_limits(run_s + self._overhead.start_s, run_s + self._overhead.start_s)
        needed = self._in_limits(run_s * runs, run_s * math.ceil(runs / self._concurrent))
        for name, left in budget.left(taken).items():
            limit = getattr(budget, name)
            reserve = min(needed[name], MOST_RESERVED * limit)
            if wanted[name] > left - reserve:
                return f"budget.{name} of {limit:g} keeps {reserve:.3g} for the confirmation"
        return None

    def _in_limits(self, trials_s: float, clock_s: float) -> dict[str, float]:
        """Seconds of trials, and by the clock, in the terms of the budget."""
        return {**self._price(trials_s), "wall_hours": clock_s / 3600}

    def _paces(self) -> list[float]:
        """Seconds of a step, of every trial that has reported."""
        return [pace for row in self._ledger.rows.copy().values() if (pace := _step_s(row))]

    def _steps_to_come(self) -> float:
        """Of trials that run, and of those that are paused as many as are expected to go on."""
        scheduler, paused = self._ledger.study.scheduler, self._ledger.paused_trials
        promoted = 1 / scheduler.reduction if scheduler.name in ("race", "hyperband") else 1.0
        rows = self._ledger.rows.copy().items()
        running = [(name, row) for name, row in rows if row["state"] == "running"]
        return sum(_left(row) * (promoted if name in paused else 1.0) for name, row in running)


def _step_s(row: Row) -> float:
    return (row["wall_s"] or 0.0) / row["step"] if row["step"] else 0.0


def _left(row: Row) -> int:
    return int(row["steps"] - (row["step"] or 0))


def _steps_left(ledger: Ledger, assignment: Assignment | None) -> int:
    """Of a trial that begins, or that goes on from its checkpoint."""
    if assignment is None:
        return ledger.study.training.steps
    done = int(Path(assignment.resume).stem) if assignment.resume else 0
    return assignment.config(ledger.study).training.steps - done
