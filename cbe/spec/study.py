"""The study file: a training file, what to search in it, how, and at what cost."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from cbe.spec.ensembles import WITH_HEADS, Ensemble
from cbe.spec.faults import Faults
from cbe.spec.methods import MethodSettings
from cbe.spec.metrics import METRICS, WHILE_TRAINING, on_test
from cbe.spec.parameters import Parameter
from cbe.spec.points import config_at
from cbe.spec.rules import MOST_POINTS, study_faults
from cbe.spec.search import default_search, grid, values_of
from cbe.spec.search_rules import typed
from cbe.spec.section import Section, Seed, named
from cbe.spec.settings import (
    MAX_REPEATS,
    Budget,
    Confirm,
    Objective,
    Resources,
    Sampler,
    Scheduler,
    Storage,
    confirm_at_most,
    margin_in,
)
from cbe.spec.terms import PRESETS, Pair, is_name
from cbe.spec.train import Data, Loss, Network, TrainConfig, Training, is_given

PAIRS = 3  # of a race, where it has the trials for them
SURVIVORS = 1 / 6  # of all trials of a race are runs on its second pair, half as many on the third
FOR_PAIRS = 0.4  # of its trials, at most, are on further pairs

SECTIONS = tuple(TrainConfig.model_fields)
DEFAULT: Any = "default"


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


def _names(value: Any) -> Any:
    if value is None:
        return ()
    return [value] if isinstance(value, str) and value != "auto" else value


class StudyConfig(Section):
    """A study: a training file, what to search in it, how, and at what cost."""

    name: str  # names the study's folder in the store
    question: str = ""  # shown above the answer

    data: Annotated[Data, named("source")] = Data()
    model: Annotated[Network, named("name")] = Network()
    ensemble: Annotated[Ensemble, named("kind")] = Ensemble()
    method: Annotated[MethodSettings, named("name")] = MethodSettings()
    loss: Loss = Loss()
    training: Training = Training()

    search: dict[str, Parameter] = DEFAULT  # a parameter for each dotted key; default: all that CBE has
    # earlier studies of the store whose trials guide the search; auto: all that are comparable
    search_from: Annotated[Literal["auto"] | tuple[str, ...], BeforeValidator(_names)] = ()
    allow_test_selection: bool = False  # permits test_error as an objective
    objective: Annotated[
        tuple[Annotated[Objective, named("metric")], ...], BeforeValidator(_listed), Field(min_length=1)
    ] = (Objective(metric="validation_error"),)
    sampler: Annotated[Sampler, named("name")] = Sampler()
    scheduler: Annotated[Scheduler, named("name")] = Scheduler()
    # training seeds that every config runs on
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=MAX_REPEATS)] = (0,)
    # label splits that every config runs on
    label_splits: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=MAX_REPEATS)] = (0,)
    budget: Budget = Budget()
    confirm: Confirm = Confirm()  # by default not more runs than the search has trials
    resources: Resources = Resources()
    storage: Annotated[Storage, named("store")] = Storage()

    @field_validator("name")
    @classmethod
    def _can_name_a_folder(cls, name: str) -> str:
        if not is_name(name):
            raise ValueError(
                "a name is up to 64 of a–z, 0–9, . _ -, from a letter or digit on, and without .."
            )
        return name

    @field_validator("search", mode="before")
    @classmethod
    def _can_be_searched(cls, search: Any, info: ValidationInfo) -> Any:
        if search == DEFAULT:
            try:
                return default_search(TrainConfig(**{name: info.data[name] for name in SECTIONS}))
            except (KeyError, ValidationError):  # a section is faulty, which is told anyway
                return {}
        return typed(search) if isinstance(search, dict) else search

    @field_validator("objective")
    @classmethod
    def _can_be_pursued(cls, objective: tuple[Objective, ...], info: ValidationInfo) -> tuple[Objective, ...]:
        metrics = [each.metric for each in objective]
        if len(set(metrics)) < len(metrics):
            raise ValueError("a metric is given twice")
        if metrics[0] not in WHILE_TRAINING:
            raise ValueError(
                f"trials are compared by the first while they train; begin with {WHILE_TRAINING[0]}"
            )
        if any(map(on_test, metrics)) and not info.data.get("allow_test_selection"):
            raise ValueError(
                "the test error of a config that was chosen by it says nothing about new images; use "
                "validation_error, or say allow_test_selection: true"
            )
        return objective

    @field_validator("seeds", "label_splits")
    @classmethod
    def _each_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("one is given twice; the runs would be the same")
        return seeds

    @field_validator("confirm", mode="before")
    @classmethod
    def _not_larger_than_the_search(cls, given: Any, info: ValidationInfo) -> Any:
        if isinstance(given, Confirm):
            given = given.model_dump(include=given.model_fields_set)
        before = [name for name in cls.model_fields if name not in ("confirm", "resources", "storage")]
        if not isinstance(given, dict) or not info.data.keys() >= set(before):
            return given  # what is faulty is told anyway
        draft = cls.model_construct(**info.data)
        try:
            if (
                draft.sampler.name == "grid"
                and math.prod(p.count for p in draft.search.values()) > MOST_POINTS
            ):
                return given
            return confirm_at_most(draft.search_trials, given)
        except ValueError:  # a grid without end, or a base that cannot be built
            return given

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        found = list(study_faults(self, is_given(info)))
        if found:
            raise Faults(found)
        return self

    @property
    def base(self) -> TrainConfig:
        """What every trial has, where its point does not say otherwise."""
        return TrainConfig(**{name: getattr(self, name) for name in SECTIONS})

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return self.objective

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The (seed, label split) pairs of the search.

        Every config runs on all of them; in a race all run on the first, and the best go on to the next.
        """
        listed = tuple(product(self.seeds, self.label_splits))
        if len(listed) > 1 or not self.is_race:
            return listed
        ((seed, split),) = listed
        fits = (n for n in range(PAIRS, 1, -1) if self._kept_for_pairs(n) <= FOR_PAIRS * self.trials)
        count = self.scheduler.pairs or next(fits, 1)
        return tuple((seed + n, split + n) for n in range(count))

    @property
    def is_race(self) -> bool:
        """Whether only the best configs run on further pairs.

        A grid runs all of its points on all pairs, and where nothing is searched nobody competes.
        """
        return self.scheduler.name == "race" and self.sampler.name != "grid" and bool(self.search)

    def survivors(self, level: int) -> int:
        """How many configs of a race go on to a further pair, at most."""
        return max(1, round(self.trials * SURVIVORS) >> (level - 1))

    def _kept_for_pairs(self, pairs: int) -> int:
        """Trials that a race on so many pairs has on all but the first."""
        return sum(len(PRESETS) + self.survivors(level) for level in range(1, pairs))

    @property
    def first_pair_trials(self) -> int:
        """Trials of the search on its first pair; all of them where there is no race."""
        if not self.is_race:
            return self.trials
        return max(self.trials - self._kept_for_pairs(len(self.pairs)), min(self.trials, len(PRESETS) + 1))

    @property
    def confirm_pairs(self) -> tuple[Pair, ...]:
        """The pairs that every confirmed config runs on.

        Earlier studies may have chosen their configs on the pairs after those of the search. Where they guide
        this one, the name gives the numbers of its pairs, so that these are new to all of them.
        """
        skipped = MAX_REPEATS * (1 + zlib.crc32(self.name.encode()) % 10_000) if self.search_from else 0
        runs = range(skipped + 1, skipped + self.confirm.runs + 1)
        last_seed, last_split = (max(pair[at] for pair in self.pairs) for at in (0, 1))
        seeds = self.confirm.seeds or [last_seed + n for n in runs]
        splits = self.confirm.label_splits or [last_split + n for n in runs]
        return tuple(zip(seeds, splits, strict=True))

    @property
    def comparisons(self) -> int:
        """Configs that the confirmation compares with the base: the paper's and the best of the search."""
        return 1 + self.confirm.configs

    @property
    def margin(self) -> float | None:
        """Differences from the base below this do not matter; None: all do."""
        given = self.confirm.margin or METRICS[self.objectives[0].metric].margin
        return margin_in(given)[0] if given else None

    @property
    def trials(self) -> int:
        """How many trials the search has: the budget's, or all of the grid's and the two fixed ones."""
        if self.budget.trials is not None:
            return self.budget.trials
        return (2 + sum(1 for _ in grid(self))) * len(self.pairs) if self.sampler.name == "grid" else 30

    @property
    def search_trials(self) -> int:
        """Trials that the search can have: those of its budget, where it has so many points."""
        fixed = len(PRESETS) * len(self.pairs)
        if not self.search:
            return min(self.trials, fixed)
        if self.sampler.name == "grid":
            return min(self.trials, fixed + sum(1 for _ in grid(self)) * len(self.pairs))
        return self.trials

    @property
    def confirm_runs(self) -> int:
        """Runs of the confirmation: of the two presets and of as many others as are asked for and tried."""
        trials, pairs = self.search_trials, 1 if self.is_race else len(self.pairs)
        on_first = self.first_pair_trials if self.is_race else trials
        sampled = math.ceil(max(0, on_first - len(PRESETS) * pairs) / pairs)
        return (min(len(PRESETS), trials) + min(self.confirm.configs, sampled)) * len(self.confirm_pairs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the file allows, but its author may not have meant."""
        found = []
        if self.search and self.trials <= len(PRESETS) * (1 if self.is_race else len(self.pairs)):
            found.append(
                "The paper's config and the base take all trials: nothing is sampled. Raise budget.trials."
            )
        if len(self.confirm_pairs) == 1:
            found.append(
                "One run to confirm gives no interval and no comparison with the base. "
                "Raise budget.trials, or set confirm.runs to 2 or more."
            )
        return tuple(found)

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every dotted key at a point of the search."""
        base = values_of(self.base)
        if self.ensemble.kind not in WITH_HEADS:
            base["ensemble.heads"] = None  # its one head says nothing about another ensemble's
        return {**base, **point}

    def train_config(self, point: Mapping[str, Any], seed: int, split: int) -> TrainConfig:
        """The base with a point's values on one seed and split; ConfigError where it cannot be built."""
        return config_at(self.base, {**point, "training.seed": seed, "data.label_split": split})

    def paper_config(self, seed: int, split: int) -> TrainConfig:
        """The paper's channel-based ensemble on the study's data, network, method and schedule."""
        return self._preset("channel", seed, split)

    def base_config(self, seed: int, split: int) -> TrainConfig:
        """The same without an ensemble."""
        return self._preset("single", seed, split)

    def _preset(self, kind: str, seed: int, split: int) -> TrainConfig:
        plain = self.base.to_plain() | {"ensemble": {"kind": kind}, "loss": {}}
        plain["training"]["seed"], plain["data"]["label_split"] = seed, split
        return TrainConfig.model_validate(plain)

    def to_plain(self) -> dict[str, Any]:
        """The study as YAML and JSON can hold it, with the search written out."""
        return self.model_dump(mode="json")


STUDY_KEYS = StudyConfig.model_fields.keys() - TrainConfig.model_fields.keys()  # that no training file has
