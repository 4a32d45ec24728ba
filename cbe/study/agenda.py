"""What a study runs next.

First what was interrupted, then the fixed trials (the paper's config and the base), the points of a grid,
what the sampler suggests. Then the confirmation, pair by pair until every verdict is known: of the fixed
configs while the last trials of the search still run, of the best ones when all have ended.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Any, Literal

from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import config_id
from cbe.spec.metrics import METRICS
from cbe.spec.search import applicable, grid, values_of
from cbe.spec.terms import PRESETS, Pair, Role
from cbe.ssl import resolve
from cbe.store.folder import DATA_FILE, StudyFolder
from cbe.store.rows import Row, pair_of
from cbe.store.states import FINAL
from cbe.study.assignment import Assignment
from cbe.study.budget.guard import BudgetGuard
from cbe.study.confirmation import confirmations, presets, winners
from cbe.study.ledger import Ledger
from cbe.study.search.survivors import has_not_ended, promotions
from cbe.study.trial.process import newest

TRACES = ("checkpoints", "logs")  # folders of the study that have one entry a trial
INFEASIBLE_LIMIT = 200  # points in a row that cannot be built

Next = Assignment | Literal["wait", "finished"]


class Agenda:
    """Hands out assignments one by one, as long as the budget lasts and nobody halts the study."""

    def __init__(
        self, study: StudyConfig, folder: StudyFolder, ledger: Ledger, budget_guard: BudgetGuard | None = None
    ) -> None:
        self.stage: Role = "search"
        self.over = False  # nothing will follow, though some may still run
        self.cut_short: str | None = None  # why the search had fewer trials than it might
        self._study, self._ledger, self._sampling = study, ledger, ledger.sampling
        self.budget_guard = budget_guard or BudgetGuard(ledger)
        # A driver that was killed may have left more of a trial than its row.
        left = {name.partition(".")[0] for under in TRACES for name in folder.list(under)}
        known = {*ledger.rows, *ledger.recorder.reported, *left}
        self._name, self._confirm_name = names_of("t", known), names_of("c", known)
        self._again = deque(_unfinished(folder, ledger))
        self._presets = deque(self._missing_presets())
        again = {self._identity(each) for each in self._again} - {None}
        missing = [*self._missing_pairs(), *self._missing_grid()]
        self._given = deque(each for each in missing if self._identity(each) not in again)
        self._folder, self._confirms = folder, False
        self._infeasible = 0

    @property
    def left(self) -> int:
        """Confirmations not yet started that may be needed."""
        return len(self._missing_confirmations()) if self._confirms else 0

    def following(self) -> Next:
        """The next assignment that can be built, or to wait for those that run."""
        while not self._ledger.stop_reason:
            self._advance()
            if self._is_done:
                self.over = True
                break
            if refused := self.budget_guard.refuses(self._again[0] if self._again else None):
                if self._runs():  # some may be stopped early, and leave room
                    return "wait"
                self._ledger.halt(refused)
                break
            upcoming = self._again.popleft() if self._again else self._next()
            if upcoming is None:
                return "wait"
            if self._ledger.assign(upcoming):
                self._infeasible = 0
                if self._ledger.reuse(upcoming):
                    continue
                return upcoming
            self._infeasible += 1
            if self._infeasible == INFEASIBLE_LIMIT and self._study.sampler.name != "grid":
                self._ledger.break_off(f"{INFEASIBLE_LIMIT} points in a row cannot be built; narrow `search`")
        return "finished"

    def _advance(self) -> None:
        """Lets the confirmation begin: of the fixed configs when the search has no more to start."""
        if self.stage == "search" and not self._again:
            self.cut_short = self._kept_for_confirmation()
            self._confirms = bool(self._study.confirm_pairs) and bool(self.cut_short or self._search_is_over)
            if self._confirms and not self._runs("search"):
                self.stage = "confirm"

    @property
    def _is_done(self) -> bool:
        """Whether nothing is left to start."""
        if self._again:
            return False
        if not self._study.confirm_pairs:
            return self._search_is_over
        # What runs may reopen a verdict: pairs count in their order.
        return self.stage == "confirm" and not self._runs() and not self._missing_confirmations()

    def _runs(self, role: Role | None = None) -> bool:
        rows = self._ledger.rows.copy().values()
        return any(row["state"] == "running" and role in (None, row["role"]) for row in rows)

    def _next(self) -> Assignment | None:
        """What begins now; None: nothing before others have ended."""
        if not self._confirms:
            return self._next_of_search()
        missing = self._missing_confirmations()
        return replace(missing[0], trial=self._confirm_name()) if missing else None

    def _kept_for_confirmation(self) -> str | None:
        """Why nothing more is searched: the confirmation needs what is left; the fixed trials run anyway."""
        if self._presets or self._search_is_over:
            return None
        return self.budget_guard.keeps(
            self._study.confirm_runs - sum(1 for _ in self._ledger.in_role("confirm"))
        )

    def _missing_confirmations(self) -> list[Assignment]:
        rows = list(self._ledger.rows.copy().values())
        best = winners(self._study, rows) if self.stage == "confirm" else []
        return confirmations(self._study, rows, [*presets(rows), *best], self.images)

    @cached_property
    def images(self) -> int | None:
        """How many images an error is counted on. Read once, before the trials: see `engine`."""
        metric = self._study.objectives[0].metric
        facts = json.loads(self._folder.read(DATA_FILE) or "{}")
        found: int | None = facts.get(METRICS[metric].counted_on)
        return found

    @property
    def _search_is_over(self) -> bool:
        if sum(row["state"] != "infeasible" for row in self._searched()) >= self._study.trials:
            return True
        if self._presets or self._given:
            return False
        if self._study.is_race:
            return self._has_sampled_all and not self._promotions() and not self._may_promote
        return self._study.sampler.name == "grid" or not self._study.search

    def _next_of_search(self) -> Assignment | None:
        if self._presets:
            return self._sampling.add(replace(self._presets.popleft(), trial=self._name()))
        if self._given:
            return self._sampling.add(replace(self._given.popleft(), trial=self._name()))
        if self._study.is_race and (promoted := self._promotions()):
            return replace(promoted[0], trial=self._name())
        if self._study.is_race and self._has_sampled_all:
            return None
        first, *others = self._study.pairs
        asked = self._sampling.ask(self._name(), first)
        # What cannot be built is told once, not once a pair; in a race only the best go on to further ones.
        if not self._study.is_race and self._identity(asked):
            self._given.extend(replace(asked, pair=pair, number=None) for pair in others)
        return asked

    @property
    def _has_sampled_all(self) -> bool:
        """Whether a race has had its trials on the first pair."""
        first = self._study.pairs[0]
        begun = [row for row in self._searched() if row["state"] != "infeasible"]
        on_first = sum(pair_of(row) == first for row in begun)
        return on_first >= self._study.first_pair_trials

    def _promotions(self) -> list[Assignment]:
        rows = list(self._searched())
        return promotions(self._study, rows) if self._has_sampled_all else []

    @property
    def _may_promote(self) -> bool:
        """Whether a run of the race may yet lead to another on the next pair."""
        return has_not_ended(self._searched(), self._study.pairs[:-1])

    def _searched(self) -> Iterator[Row]:
        """Trials of the search, but those that a lowered budget has taken back."""
        return (r for r in self._ledger.in_role("search") if r["trial"] not in self._sampling.taken_back)

    def _missing_presets(self) -> Iterator[Assignment]:
        have = {(row["preset"], *pair_of(row)) for row in self._ledger.in_role("search")}
        have |= {(again.preset, *again.pair) for again in self._again if again.role == "search"}
        for pair in self._study.pairs[:1] if self._study.is_race else self._study.pairs:
            for preset in PRESETS:
                if (preset, *pair) not in have:
                    bare = Assignment("", "search", pair, preset=preset)
                    yield replace(bare, point=self._point(bare))

    def _point(self, preset: Assignment) -> dict[str, Any]:
        """A fixed config in the terms of the search space; whether it lies in there the sampler decides."""
        values = values_of(resolve(preset.config(self._study)))
        return {key: values[key] for key, p in self._study.search.items() if applicable(key, p, values)}

    def _missing_pairs(self) -> Iterator[Assignment]:
        """Sampled configs that a driver that died, or a shorter list of seeds, has not run on all pairs."""
        if self._study.sampler.name == "grid" or self._study.is_race:
            return
        have: dict[str, set[Pair]] = {}
        for row in self._ledger.in_role("search"):
            if not row["preset"] and row["state"] != "infeasible":
                have.setdefault(row["params"], set()).add(pair_of(row))
        for params, pairs in have.items():
            for pair in self._study.pairs:
                if pair not in pairs:
                    yield Assignment("", "search", pair, json.loads(params))

    def _missing_grid(self) -> Iterator[Assignment]:
        if self._study.sampler.name != "grid":
            return
        done = ((row["config_id"], *pair_of(row)) for row in self._ledger.in_role("search"))
        have = {*done, *(self._identity(preset) for preset in self._presets)}
        impossible = [row["params"] for row in self._ledger.in_role("search") if row["state"] == "infeasible"]
        for point in grid(self._study):
            for pair in self._study.pairs:
                assignment = Assignment("", "search", pair, point)
                if self._identity(assignment) not in have and json.dumps(point) not in impossible:
                    yield assignment

    def _identity(self, assignment: Assignment) -> tuple[str, int, int] | None:
        try:
            return (config_id(resolve(assignment.config(self._study))), *assignment.pair)
        except ConfigError:
            return None


def names_of(letter: str, trials: Iterable[str]) -> Callable[[], str]:
    """Gives one unused name after the other: t0000, t0001, …"""
    taken = (int(name[1:]) for name in trials if name.startswith(letter) and name[1:].isdigit())
    last = max(taken, default=-1)
    numbers = count(last + 1)
    return lambda: f"{letter}{next(numbers):04d}"


def _interval(row: Row) -> int:
    training = TrainConfig.model_validate_json(row["config"]).training
    return training.evaluation_interval


def _unfinished(folder: StudyFolder, ledger: Ledger) -> Iterator[Assignment]:
    """Trials that ran when the driver ended, each from its last checkpoint not ahead of the record."""
    for name, row in sorted(ledger.rows.items()):
        if row["state"] not in FINAL and name not in ledger.sampling.taken_back:
            point, pair = json.loads(row["params"]), pair_of(row)
            recorded, since = ledger.recorder.recorded_step(name), row["epoch"] or 0
            resume = newest(folder, name, recorded, _interval(row), since)
            number = ledger.sampling.number(name)
            yield Assignment(name, row["role"], pair, point, row["preset"], number, resume)
