"""How a study is run: what it pursues, how, at what cost, and where results go."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from cbe.clouds import PLACES, cloud_of
from cbe.spec.faults import Faults
from cbe.spec.metrics import METRICS, OBJECTIVES
from cbe.spec.section import Count, Section, Seed
from cbe.spec.terms import PRESETS, Direction
from cbe.spec.train import Training

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

MAX_REPEATS = 1000  # configs to confirm, runs of each, seeds, label splits
MOST_TRIALS = 10_000_000

SECRET = re.compile(
    r"://[^/@]+:[^@]*@|[?&][a-z_]*(password|passwd|secret|token|key|credentials|sig)=", re.IGNORECASE
)


if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[OBJECTIVES]


class Objective(Section):
    """What the search minimizes or maximizes; a list of several gives a Pareto front."""

    # what is compared; test_error needs allow_test_selection
    metric: ObjectiveName
    direction: Direction = "minimize"  # which way is better

    @model_validator(mode="before")
    @classmethod
    def _as_the_metric_has_it(cls, given: Any) -> Any:
        found = METRICS.get(str(given.get("metric"))) if isinstance(given, dict) else None
        return {"direction": found.objective, **given} if found and found.objective else given


class Sampler(Section):
    """What suggests the next config: by prior and a model of the space, or one of Optuna's samplers."""

    # which sampler
    name: Literal["prior", "tpe", "gp", "cmaes", "nsga2", "random", "grid", "sobol"] = "prior"
    seed: Seed = 0  # makes the suggestions repeatable


# Where a race compares trials. Early values say little: on digits their rank correlation with the end is 0.4
# at a third of the steps, 0.7 at a half, 0.9 at two thirds (python -m benchmarks.landscape signal digits).
RUNGS = (1 / 2, 2 / 3)


class Scheduler(Section):
    """How trials with poor results are ended early."""

    # which of Ray Tune's schedulers, or race: trials pause at rungs, and the best and most promising go on
    name: Literal["race", "asha", "hyperband", "pbt", "median", "none"] = "race"
    grace: Annotated[float, Field(gt=0, lt=1)] | Count = 0.1  # steps, or their share, that every trial gets
    reduction: Annotated[int, Field(ge=2)] = 3  # of so many trials at a rung, one goes on at least
    # where race compares trials, as shares of the steps; null: 1/2 and 2/3
    rungs: tuple[float, ...] | None = None
    # pairs of seed and label split that the best configs of a race run on; null: 3, fewer with few trials
    pairs: Annotated[int, Field(ge=1, le=MAX_REPEATS)] | None = None

    @model_validator(mode="after")
    def _of_a_race(self) -> Self:
        for key in ("rungs", "pairs"):
            if getattr(self, key) is not None and self.name != "race":
                raise ValueError(f"{key} are for the scheduler race, not for {self.name}; leave them out")
        if self.rungs is None:
            return self
        rising = all(low < high for low, high in zip(self.rungs, self.rungs[1:], strict=False))
        if not (self.rungs and rising and all(0 < share < 1 for share in self.rungs)):
            raise ValueError(
                "rungs are shares of the steps, above 0, below 1 and rising, as in [0.17, 0.34]; "
                f"given: {list(self.rungs)}"
            )
        return self

    def rung_steps(self, training: Training) -> tuple[int, ...]:
        """The steps at which race compares trials: whole evaluations before the last.

        >>> Scheduler(name="race").rung_steps(Training(steps=1000, eval_every=30))
        (510, 690)
        """
        interval = training.evaluation_interval
        shares = [Decimal(str(share)) for share in self.rungs or RUNGS]
        steps = {math.ceil(share * training.steps / interval) * interval for share in shares}
        return tuple(sorted(step for step in steps if step < training.steps))

    def grace_steps(self, training: Training) -> int:
        """Steps before a trial may be ended: whole evaluations, and no more than there are.

        >>> Scheduler().grace_steps(Training(steps=1000, eval_every=30))
        120
        """
        # In decimals, since 0.07 × 100 is a little more than 7 in binary.
        steps = self.grace if isinstance(self.grace, int) else Decimal(str(self.grace)) * training.steps
        interval = training.evaluation_interval
        return min(math.ceil(steps / interval) * interval, training.steps)


MARGINS = {"point": 0.01, "points": 0.01, "nat": 1.0, "nats": 1.0}  # units and what they are of the metric
_MARGIN = re.compile(r"(\d+(?:\.\d+)?) ?(points?|nats?)")


def margin_in(text: str) -> tuple[float, str]:
    """A margin as the metric has it, and its unit.

    >>> margin_in("0.5 points")
    (0.005, 'points')
    """
    found = _MARGIN.fullmatch(text)
    if found is None or not float(found[1]):
        raise ValueError(
            "a margin is a number above 0 and its unit: 1 point of an error, 0.01 nats of a loss"
        )
    return float(Decimal(found[1]) * Decimal(str(MARGINS[found[2]]))), found[2]


class Confirm(Section):
    """New runs of the best configs, on seeds and label splits that the search has not seen.

    They are made pair by pair, beside the base and the paper's config, until all comparisons with the base
    are decided.
    """

    # how many of the best; fewer after a small search
    configs: Annotated[int, Field(ge=0, le=MAX_REPEATS)] = 2
    # new runs of each config at most, fewer after a small search; 0: no confirmation
    runs: Annotated[int, Field(ge=0, le=MAX_REPEATS)] = 12
    # configs that differ from the base by less are equivalent, as 1 point; null: 1 point for errors
    margin: str | None = None
    # one for each run; null: the next after the search's, or, with search_from, numbers given by the name
    seeds: tuple[Seed, ...] | None = None
    label_splits: tuple[Seed, ...] | None = None  # one for each run; null: likewise

    @field_validator("margin", mode="before")
    @classmethod
    def _has_a_unit(cls, margin: Any) -> Any:
        if margin is not None:
            margin_in(str(margin))
        return margin

    @model_validator(mode="before")
    @classmethod
    def _as_many_runs_as_listed(cls, value: Any) -> Any:
        if value is False or value in ("none", "off"):
            return {"runs": 0}
        if isinstance(value, dict) and "runs" not in value:
            listed = next(
                (v for k in ("seeds", "label_splits") if isinstance(v := value.get(k), (list, tuple))), None
            )
            return value if listed is None else {**value, "runs": len(listed)}
        return value

    @model_validator(mode="after")
    def _lists_pair_up(self) -> Self:
        for key, listed in (("seeds", self.seeds), ("label_splits", self.label_splits)):
            if listed is not None and len(listed) != self.runs:
                raise ValueError(
                    f"{key} lists {len(listed)} for {self.runs} run{'s' * (self.runs != 1)}; "
                    "each run has one of its own"
                )
        pairs = list(zip(self.seeds or (), self.label_splits or (), strict=False))
        if len(set(pairs)) < len(pairs):
            raise ValueError("a seed is listed twice with the same label split; the run would be the same")
        return self


# Configs and runs of each, as many as the search has trials for: few configs, so that each has many runs.
_CONFIRM = ((2, 12), (1, 12), (1, 10), (1, 8), (1, 6), (1, 5), (1, 4), (1, 3), (1, 2), (1, 1))


def confirm_at_most(trials: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """A confirmation of not more runs than the search has trials, as far as the user leaves that open.

    >>> confirm_at_most(12, {}), confirm_at_most(12, {"runs": 5})
    ({'configs': 1, 'runs': 4}, {'runs': 5, 'configs': 1})
    >>> confirm_at_most(12, {"seeds": None})
    {'seeds': None, 'configs': 1, 'runs': 4}
    """
    listed = {key for key in ("runs", "seeds", "label_splits") if given.get(key) is not None}
    wanted = [(given.get("configs", configs), given.get("runs", runs)) for configs, runs in _CONFIRM]
    if listed and "configs" in given:
        return dict(given)
    if not all(isinstance(number, int) for pair in wanted for number in pair):
        return dict(given)
    if listed and "runs" not in given:
        lists = [value for key in listed if isinstance(value := given[key], (list, tuple))]
        count = max(map(len, lists), default=0)
        wanted = [(configs, count) for configs, _ in wanted]
    fits = (pair for pair in wanted if (pair[0] + len(PRESETS)) * pair[1] <= trials)
    configs, runs = next(fits, wanted[-1])
    return {**given, "configs": configs} | ({} if listed else {"runs": runs})


class Budget(Section):
    """Where a study halts, whichever comes first; more trials, hours or money let `cbe resume` go on."""

    # of the search; null: all points of a grid, else 30
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None = None
    wall_hours: Positive | None = None  # that the study runs by the clock, all its starts together
    gpu_hours: Positive | None = None  # hours of trials times the GPUs that each has
    usd: Positive | None = None  # needs resources.usd_per_hour, or a cluster with prices

    def left(self, used: Mapping[str, float]) -> dict[str, float]:
        """What is left of each limit of time and money that is given.

        >>> Budget(usd=20, wall_hours=1).left({"usd": 12.5, "gpu_hours": 3, "wall_hours": 1.1})
        {'wall_hours': 0.0, 'usd': 7.5}
        """
        limits = {"wall_hours": self.wall_hours, "gpu_hours": self.gpu_hours, "usd": self.usd}
        return {name: max(0.0, limit - used[name]) for name, limit in limits.items() if limit is not None}


class Resources(Section):
    """What one trial occupies."""

    workers: Count = 1  # processes of one trial
    # of each worker; below 1, trials share a card; null: 1 where there are any
    gpus: NotNegative | None = None
    cpus: Positive = 1  # cores of each worker
    concurrent: Count | None = None  # trials at once; null: as many as fit
    usd_per_hour: NotNegative = 0  # price of all that one trial occupies

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return max(1, int(self.cpus))

    @field_validator("gpus")
    @classmethod
    def _whole_cards(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and gpus % 1:
            raise ValueError("a worker shares one card (below 1) or has whole ones (1, 2, …)")
        return gpus


class Storage(Section):
    """Where results go."""

    store: Annotated[str, Field(min_length=1)] = "results"  # a local path, s3://…, gs://… or abfs://…
    shared: bool = False  # the store is a local path that all machines of the cluster see, as on NFS
    optuna: str | None = None  # an Optuna storage URL; null: a journal file in the study's folder
    reuse: bool = True  # take over runs that the store already holds, instead of training them again

    @field_validator("store", "optuna")
    @classmethod
    def _no_secrets(cls, url: str | None) -> str | None:
        if url and SECRET.search(url):  # a fault of its own text: the value must not be printed
            raise Faults([((), "a URL with a password in it", "secrets belong in the environment")])
        return url

    @field_validator("store")
    @classmethod
    def _local_or_in_a_bucket(cls, store: str) -> str:
        if "://" in store and cloud_of(store) is None:
            raise ValueError(f"a store is {PLACES}")
        return store
