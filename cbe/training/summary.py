"""A trial in a few numbers, none of them chosen by looking at the test set."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbe.spec.metrics import SUMMARIES, SUMMARIZED

WINDOW = 20

Evaluation = dict[str, Any]  # the step, and each metric that is summarized


@dataclass(frozen=True)
class Summary:
    """Each figure of the last evaluation, the median of the last 20, and the one best on validation."""

    evaluations: Sequence[Evaluation]  # in the order of steps

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]

    @property
    def best(self) -> Evaluation:
        """The earliest of the evaluations with the lowest validation error."""
        return min(self.evaluations, key=lambda each: (each["validation_error"], each["step"]))

    @property
    def median(self) -> Evaluation:
        window = self.evaluations[-WINDOW:]
        known = {name: [each[name] for each in window if each[name] is not None] for name in SUMMARIZED}
        return {
            "step": self.last["step"],
            **{name: statistics.median(some) if some else None for name, some in known.items()},
        }

    def to_plain(self) -> dict[str, Evaluation]:
        return {which: getattr(self, which) for which in SUMMARIES}


def evaluation(row: Mapping[str, Any]) -> Evaluation:
    """What a summary needs of an evaluation."""
    return {name: row.get(name) for name in ("step", *SUMMARIZED)}
