"""What a study may still spend, and whether another trial fits into it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from cbe.study.assignment import Assignment
from cbe.study.ledger import Ledger

Row = Mapping[str, Any]

STOP_S = 0.1  # that a trial takes to hear of the end and to keep a checkpoint


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


class Purse:
    """Holds the limits of a study's budget against what its trials and their machines have cost."""

    def __init__(self, ledger: Ledger, overhead: Overhead | None = None) -> None:
        self._ledger, self._overhead, self._grows = ledger, overhead or NoOverhead(), overhead is not None

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
        rows = self._ledger.rows.copy()
        step_s = max((_step_s(row) for row in rows.values()), default=0.0)
        if not step_s:
            first = not (self._ledger.busy or self._ledger.waiting)
            return None if first or not self._grows else "the first trial has not told its pace yet"
        upper_s = step_s * _steps_left(self._ledger, assignment) + self._overhead.start_s
        running = (row for row in rows.values() if row["state"] == "running")
        taken_s = self._spent_s + self._overhead.tail_s + sum(_left(row) * step_s for row in running)
        for name, limit in self.limits.items():
            left, wanted = limit - self._price(taken_s)[name], self._price(upper_s)[name]
            if wanted > left:
                return (
                    f"budget.{name} of {limit:g} holds no other trial: {max(left, 0):.3g} is left, "
                    f"and one takes up to {wanted:.3g}"
                )
        return None


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
