"""A trial in a few numbers, none of them chosen by looking at the test set."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

WINDOW = 20


@dataclass(frozen=True)
class Evaluation:
    step: int
    validation_error: float
    test_error: float | None


@dataclass(frozen=True)
class Summary:
    """Each figure of the last evaluation, the median of the last 20, and the one best on validation."""

    evaluations: tuple[Evaluation, ...]

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]

    @property
    def best(self) -> Evaluation:
        """The earliest of the evaluations with the lowest validation error."""
        return min(self.evaluations, key=lambda e: (e.validation_error, e.step))

    @property
    def median(self) -> Evaluation:
        window = self.evaluations[-WINDOW:]
        tests = [e.test_error for e in window if e.test_error is not None]
        return Evaluation(
            self.last.step,
            statistics.median(e.validation_error for e in window),
            statistics.median(tests) if tests else None,
        )

    def to_plain(self) -> dict[str, Any]:
        return {name: asdict(getattr(self, name)) for name in ("last", "median", "best")}

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> Summary:
        """From rows that have the fields of an evaluation, in the order of steps."""
        return cls(tuple(Evaluation(row["step"], row["validation_error"], row["test_error"]) for row in rows))
