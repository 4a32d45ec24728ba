"""A study's trials, grouped by config: the runs that their figures are of, and in what order they rank."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from cbe.names import trial_order
from cbe.spec import StudyConfig
from cbe.spec.terms import Direction, Pair, Preset, Role
from cbe.store.rows import Row, pair_of
from cbe.store.states import OPEN


@dataclass(frozen=True, eq=False)
class Config:
    """All trials of one config, those of the search first."""

    rows: Sequence[Row]

    @property
    def config_id(self) -> str:
        return str(self.rows[0]["config_id"])

    @property
    def preset(self) -> Preset | None:
        """paper or base, where the config is one of the two."""
        return next((row["preset"] for row in self.rows if row["preset"]), None)

    @property
    def first_trial(self) -> str:
        return str(self.rows[0]["trial"])

    def completed(self, role: Role) -> list[Row]:
        """The trials that were trained to their end and have a figure, by seed and split."""
        found = [row for row in self.rows if row["role"] == role and counts(row)]
        return sorted(found, key=lambda row: (*pair_of(row), row["trial"]))

    def failed(self, role: Role) -> int:
        """Runs that would have counted, had they not failed."""
        lost = {pair_of(row) for row in self.rows if row["role"] == role and row["state"] == "failed"}
        return len(lost - {pair_of(row) for row in self.completed(role)})

    def runs(self, role: Role, column: str = "objective") -> dict[Pair, float]:
        """A figure of every run, its objective unless told otherwise; the same run made twice is one."""
        values: dict[Pair, list[float]] = defaultdict(list)
        for row in self.completed(role):
            if is_finite(row[column]):
                values[pair_of(row)].append(row[column])
        return {pair: fmean(each) if len(each) > 1 else each[0] for pair, each in values.items()}


def grouped(rows: Iterable[Row], study: StudyConfig) -> list[Config]:
    """The configs with at least one run that counts."""
    of_config: dict[str, list[Row]] = defaultdict(list)
    ordered = sorted(rows, key=trial_order)
    # A study that was given more seeds, or trials, may since have searched on what was new to it before.
    seeds = {*study.seeds, *(row["seed"] for row in ordered if row["role"] == "search")}
    splits = {*study.label_splits, *(row["label_split"] for row in ordered if row["role"] == "search")}
    for row in ordered:
        seen = row["seed"] in seeds or row["label_split"] in splits
        if row["config_id"] and not (row["role"] == "confirm" and seen):
            of_config[row["config_id"]].append(row)
    return [Config(rows) for rows in of_config.values() if any(map(counts, rows))]


def deciding_role(configs: Sequence[Config]) -> Role:
    """Whose runs decide: the confirmation's, once it has more than the presets, which it runs ahead."""
    sampled = [config for config in configs if not config.preset]
    return "confirm" if any(config.completed("confirm") for config in sampled or configs) else "search"


def no_config_is_ahead(configs: Sequence[Config], rows: Iterable[Row], direction: Direction) -> bool:
    """Whether the search is over and none of its configs beats the base on the pairs that they share.

    None of them is confirmed then: the confirmation is of the paper's config and the base alone.
    """
    if any(row["role"] == "search" and row["state"] in OPEN for row in rows):
        return False
    base = next((config for config in configs if config.preset == "base"), None)
    sampled = [config for config in configs if not config.preset]
    if base is None or not base.completed("confirm") or not sampled:
        return False
    if any(config.completed("confirm") for config in sampled):
        return False
    return not any(is_ahead(config, base, direction) for config in sampled)


def is_ahead(config: Config, base: Config | None, direction: Direction) -> bool:
    """Whether a config beats the base on the pairs of the search that both have run; so it does on none."""
    runs, theirs = config.runs("search"), base.runs("search") if base else {}
    shared, sign = runs.keys() & theirs.keys(), 1 if direction == "minimize" else -1
    return not shared or sign * fmean(runs[pair] - theirs[pair] for pair in shared) < 0


def ranking_role(configs: Sequence[Config], rows: Iterable[Row], study: StudyConfig) -> Role:
    """Whose runs rank the configs: the confirmation's, also where no config of the search is worth one."""
    if no_config_is_ahead(configs, rows, study.objectives[0].direction):
        return "confirm"
    return deciding_role(configs)


def in_order(
    configs: Iterable[Config],
    role: Role,
    direction: Direction,
    last: Set[str] = frozenset(),
) -> list[Config]:
    """The configs that have runs in a role, the best first; those named as `last` after all others.

    Configs may have run on different seeds and label splits. So they rank by their mean difference to the
    base on the runs that they share with it.
    """
    runs = {config: found for config in configs if (found := config.runs(role))}
    base = next((found for config, found in runs.items() if config.preset == "base"), {})
    most = max((len(found) for config, found in runs.items() if not config.preset), default=0)
    sign = 1 if direction == "minimize" else -1

    def merit(config: Config) -> tuple[Any, ...]:
        # The search stops or drops a config where it is bad: what ended on most runs comes first. The presets
        # are never dropped, so that their number of runs says nothing.
        finished = -most if config.preset else -len(runs[config])
        behind = finished if role == "search" else 0
        return (config.config_id in last, behind, sign * _difference(runs[config], base), config.first_trial)

    return sorted(runs, key=merit)


def _difference(runs: Mapping[Pair, float], base: Mapping[Pair, float]) -> float:
    """The mean difference to the base: of shared runs, or of the means where there are none."""
    if shared := runs.keys() & base.keys():
        return fmean(runs[pair] - base[pair] for pair in sorted(shared))
    return fmean(runs.values()) - (fmean(base.values()) if base else 0.0)


@dataclass(frozen=True)
class Leader:
    """The config that ranks first."""

    trial: str  # its first
    preset: Preset | None
    params: str | None  # what was sampled, as JSON
    role: Role  # whose runs it ranks by
    mean: float
    n: int


def leader(rows: Iterable[Row], study: StudyConfig) -> Leader | None:
    """The config that ranks first in a study's answer; None before a trial was trained to its end."""
    rows = list(rows)
    configs = grouped(rows, study)
    role = ranking_role(configs, rows, study)
    ordered = in_order(configs, role, study.objectives[0].direction)
    if not ordered:
        return None
    first = ordered[0]
    runs = first.runs(role)
    params = first.rows[0]["params"]
    return Leader(first.first_trial, first.preset, params, role, fmean(runs.values()), len(runs))


def counts(row: Row) -> bool:
    """Whether a trial was trained to its end and has a figure."""
    return row["state"] == "completed" and is_finite(row["objective"])


def is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
