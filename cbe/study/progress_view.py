"""What a screen shows of a study, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cbe.configs import Leader, counts
from cbe.spec.terms import Role
from cbe.store.rows import Row, pair_of
from cbe.store.states import COUNTED, TrialState
from cbe.study.overview import Details


class Shown(Protocol):
    """A study that goes on while it is looked at."""

    @property
    def name(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def stage(self) -> str:
        """search, confirm, finished or stopped; from afar also any state in which nothing runs."""

    @property
    def searching(self) -> bool:
        """Whether it is still open which configs are confirmed."""

    @property
    def trials(self) -> int:
        """Of the search."""

    @property
    def confirm_total(self) -> int:
        """Runs of the confirmation; at most, while the search goes on."""

    def rows(self, role: Role | None = None, state: TrialState | None = None) -> Sequence[Row]: ...
    @property
    def leader(self) -> Leader | None:
        """The config that ranks first; None before a trial was trained to its end."""

    @property
    def elapsed_s(self) -> float | None: ...
    @property
    def steps_per_s(self) -> float | None: ...
    @property
    def eta_s(self) -> tuple[float, float] | None: ...
    @property
    def stop_reason(self) -> str | None:
        """Why it stops."""

    @property
    def problem(self) -> str | None:
        """Why results cannot be written."""

    @property
    def said(self) -> Sequence[str]:
        """What happens while no trial runs, the last at the end."""


@dataclass
class DetailsView:
    """A study that runs elsewhere, by its latest details."""

    details: Details

    @property
    def name(self) -> str:
        return self.details.overview.study

    @property
    def question(self) -> str:
        return self.details.overview.question

    @property
    def metric(self) -> str:
        return self.details.overview.metric or ""

    @property
    def stage(self) -> str:
        about = self.details.overview
        if about.state != "running":
            return about.state
        return "stopped" if self.stop_reason else about.stage or about.state

    @property
    def searching(self) -> bool:
        return self.details.overview.stage == "search"

    @property
    def trials(self) -> int:
        part = self.details.overview.search
        return part.total if part else 0

    @property
    def confirm_total(self) -> int:
        part = self.details.overview.confirm
        return part.total if part else 0

    def rows(self, role: Role | None = None, state: TrialState | None = None) -> list[Row]:
        return chosen(self.details.trials, role, state)

    @property
    def leader(self) -> Leader | None:
        about, trials = self.details.overview, self.details.trials
        first = next((row for row in trials if row["trial"] == about.best_trial), None)
        if first is None or about.best is None:
            return None
        role: Role = "confirm" if about.best_role == "confirm" else "search"
        own = (row for row in trials if row["config_id"] == first["config_id"] and row["role"] == role)
        n = len({pair_of(row) for row in own if counts(row)})
        return Leader(first["trial"], first["preset"], first["params"], role, about.best, n)

    @property
    def elapsed_s(self) -> float | None:
        return self.details.overview.elapsed_s

    @property
    def steps_per_s(self) -> float | None:
        return self.details.overview.steps_per_s

    @property
    def eta_s(self) -> tuple[float, float] | None:
        return self.details.overview.eta_s

    @property
    def stop_reason(self) -> str | None:
        """A driver that runs has nothing to explain but that it stops."""
        about = self.details.overview
        if about.state == "stopping":
            return about.reason or "it was asked to stop"
        return about.reason if about.state in ("running", "stopped") else None

    @property
    def problem(self) -> str | None:
        return self.details.overview.problem

    @property
    def said(self) -> list[str]:
        about = self.details.overview
        if about.reason and not self.stop_reason:
            return [f"{about.state}: {about.reason}"]
        return [about.state] if about.state in ("queued", "starting") else []


def chosen(rows: Iterable[Row], role: Role | None, state: TrialState | None) -> list[Row]:
    """The rows of one part, or in one state, of a study."""
    return [row for row in rows if role in (None, row["role"]) and state in (None, row["state"])]


def done(shown: Shown, role: Role) -> int:
    """Trials of one part that have ended."""
    return sum(row["state"] in COUNTED for row in shown.rows(role))
