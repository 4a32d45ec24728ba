"""How a running study stands, in plain values: for the screen, for status.json and for programs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from cbe.spec import StudyConfig
from cbe.study.agenda import Agenda
from cbe.study.ledger import Ledger

Row = Mapping[str, Any]
Watch = Callable[["Progress"], AbstractContextManager[Any]]  # shows a study while it runs


@dataclass(frozen=True)
class Running:
    trial: str
    role: str
    step: int
    steps: int
    objective: float | None


@dataclass(frozen=True)
class Failure:
    trial: str
    error_class: str
    error_text: str


class Progress:
    """A view of the ledger; every property is computed when it is read."""

    def __init__(self, ledger: Ledger, agenda: Agenda, concurrent: int) -> None:
        self.study: StudyConfig = ledger.study
        self.ledger, self.agenda = ledger, agenda
        self.concurrent = concurrent
        self.started = time.monotonic()
        self.said: list[str] = []
        self._steps_before = sum(row["step"] or 0 for row in self.rows())

    def say(self, line: str) -> None:
        self.said.append(line)

    @property
    def stage(self) -> str:
        """search, confirm, finished or halted."""
        if self.ledger.halted:
            return "halted"
        done = self.agenda.stage == "confirm" and not self.agenda.left and not self.running
        return "finished" if done else self.agenda.stage

    def rows(self, role: str | None = None) -> list[Row]:
        return [row for row in self.ledger.rows.copy().values() if role in (None, row["role"])]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def counts(self) -> dict[str, int]:
        """Trials by state, search and confirmation together."""
        return dict(Counter(row["state"] for row in self.rows()))

    @property
    def running(self) -> list[Running]:
        return [
            Running(row["trial"], row["role"], row.get("step") or 0, row["steps"], row.get("objective"))
            for row in self.rows()
            if row["state"] == "running"
        ]

    @property
    def failures(self) -> list[Failure]:
        return [
            Failure(row["trial"], row["error_class"], row["error_text"])
            for row in self.rows()
            if row["state"] == "failed"
        ]

    @property
    def best(self) -> Row | None:
        """The search trial with the best objective so far of those trained to the end, or else of all."""
        sign = 1 if self.study.objectives[0].direction == "minimize" else -1
        measured = [row for row in self.rows("search") if math.isfinite(_number(row["objective"]))]
        ended = [row for row in measured if row["state"] == "completed"]
        return min(ended or measured, key=lambda row: (sign * row["objective"], row["trial"]), default=None)

    @property
    def steps_per_s(self) -> float:
        """Of all trials together since this start."""
        steps = sum(row.get("step") or 0 for row in self.rows()) - self._steps_before
        return steps / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def eta_s(self) -> tuple[float, float] | None:
        """Seconds left at least and at most: as trials were so far, and if none were stopped early."""
        ended = [row for row in self.rows() if row["state"] in ("completed", "stopped")]
        rates = [row["wall_s"] / row["step"] for row in ended if row.get("step") and row.get("wall_s")]
        if not rates:
            return None
        step_s, steps = sum(rates) / len(rates), self.study.training.steps
        searched = [row for row in ended if row["role"] == "search"]
        usual = sum(row["step"] for row in searched) / len(searched) if searched else steps
        still = max(0, self.study.trials - len([r for r in self.rows("search") if r["state"] in _ENDED]))
        confirm = self.confirm_total - len([r for r in self.rows("confirm") if r["state"] in _ENDED])
        low, high = (
            step_s * (still * of_search + max(0, confirm) * steps) / self.concurrent
            for of_search in (usual, steps)
        )
        return low, high

    @property
    def confirm_total(self) -> int:
        """Runs of the confirmation; at most, while the search goes on."""
        if self.agenda.stage == "confirm":
            return len(self.rows("confirm")) + self.agenda.left
        return (self.study.confirm.configs + 2) * len(self.study.confirm_pairs)

    def to_plain(self) -> dict[str, Any]:
        best = self.best
        return {
            "study": self.study.name,
            "stage": self.stage,
            "halted": self.ledger.halted,
            "elapsed_s": round(self.elapsed_s, 1),
            "counts": self.counts,
            "trials": self.study.trials,
            "confirmations": self.confirm_total,
            "running": [asdict(each) for each in self.running],
            "best": {key: best[key] for key in ("trial", "config_id", "objective")} if best else None,
            "eta_s": self.eta_s,
            "steps_per_s": round(self.steps_per_s, 2),
            "failures": len(self.failures),
            "problem": self.ledger.recorder.problem,
        }


_ENDED = ("completed", "stopped", "failed")


def _number(value: float | None) -> float:
    return math.nan if value is None else value
