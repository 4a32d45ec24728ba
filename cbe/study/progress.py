"""How a running study stands, in plain values: for the screen, for status.json and for programs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from cbe.configs import Leader, leader
from cbe.spec import StudyConfig
from cbe.spec.terms import Role
from cbe.store.rows import Row
from cbe.store.states import TRAINED, TrialState, current
from cbe.study.agenda import Agenda
from cbe.study.ledger import Ledger
from cbe.study.progress_view import chosen, done

Watch = Callable[["Progress"], AbstractContextManager[Any]]  # shows a study while it runs


class Progress:
    """A view of the ledger; every property is computed when it is read."""

    def __init__(self, ledger: Ledger, agenda: Agenda, concurrent: int, before_s: float = 0.0) -> None:
        self.study: StudyConfig = ledger.study
        self.ledger, self.agenda = ledger, agenda
        self.concurrent = concurrent
        self.started = time.monotonic()
        self._before_s = before_s  # that earlier starts of the study took
        self.said: list[str] = []
        self._steps_before = self._steps()

    def say(self, line: str) -> None:
        self.said.append(line)

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def question(self) -> str:
        return self.study.question

    @property
    def metric(self) -> str:
        return self.study.objectives[0].metric

    @property
    def trials(self) -> int:
        return self.study.trials

    @property
    def stop_reason(self) -> str | None:
        return self.ledger.stop_reason

    @property
    def problem(self) -> str | None:
        return self.ledger.recorder.problem

    @property
    def searching(self) -> bool:
        return self.agenda.stage == "search"

    @property
    def stage(self) -> str:
        """search, confirm, finished or stopped."""
        if self.stop_reason:
            return "stopped"
        over = self.agenda.over and not self.rows(state="running") and not self.rows(state="paused")
        return "finished" if over else self.agenda.stage

    def rows(self, role: Role | None = None, state: TrialState | None = None) -> list[Row]:
        paused = self.ledger.paused_trials
        rows = self.ledger.rows.copy().values()
        return chosen([current(row, alive=True, paused=paused) for row in rows], role, state)

    @property
    def elapsed_s(self) -> float:
        """Since the study began, without the times between its starts."""
        return self._before_s + self._here_s

    @property
    def _here_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def leader(self) -> Leader | None:
        return leader(self.rows(), self.study)

    @property
    def steps_per_s(self) -> float:
        """Of all trials together since this start."""
        here_s = self._here_s
        return (self._steps() - self._steps_before) / here_s if here_s > 0 else 0.0

    def _steps(self) -> int:
        return sum(row["step"] or 0 for row in self.rows() if not row["reused_from"])

    @property
    def eta_s(self) -> tuple[float, float] | None:
        """Seconds left at least and at most: as trials were so far, and if none were stopped early."""
        ended = [row for row in self.rows() if row["state"] in TRAINED]
        rates = [row["wall_s"] / row["step"] for row in ended if row["step"] and row["wall_s"]]
        if not rates:
            return None
        step_s, steps = sum(rates) / len(rates), self.study.training.steps
        searched = [row for row in ended if row["role"] == "search"]
        usual = sum(row["step"] for row in searched) / len(searched) if searched else steps
        search = max(0, self.trials - done(self, "search")) if self.searching else 0
        confirm = max(0, self.confirm_total - done(self, "confirm"))
        low, high = (
            step_s * (search * of_search + confirm * steps) / self.concurrent for of_search in (usual, steps)
        )
        return low, high

    @property
    def confirm_total(self) -> int:
        """Runs of the confirmation; at most, while the search goes on."""
        if not self.searching:
            return len(self.rows("confirm")) + self.agenda.left
        return self.study.confirm_runs

    def to_plain(self) -> dict[str, Any]:
        rows, best = self.rows(), self.leader
        return {
            "study": self.name,
            "stage": self.stage,
            "stop_reason": self.stop_reason,
            "broken": self.ledger.broken,
            "elapsed_s": round(self.elapsed_s, 1),
            "counts": dict(Counter(row["state"] for row in rows)),
            "trials": self.trials,
            "confirmations": self.confirm_total,
            "cut_short": self.agenda.cut_short,
            "running": [
                {key: row[key] for key in ("trial", "role", "step", "steps", "objective")}
                for row in chosen(rows, None, "running")
            ],
            "paused": [row["trial"] for row in chosen(rows, None, "paused")],
            "best": {"trial": best.trial, "role": best.role, "objective": best.mean} if best else None,
            "eta_s": self.eta_s,
            "steps_per_s": round(self.steps_per_s, 2),
            "failures": len(chosen(rows, None, "failed")),
            "problem": self.problem,
            "outage": self.ledger.recorder.outage.last,
            "idle": self.agenda.budget_guard.idle,
        }
