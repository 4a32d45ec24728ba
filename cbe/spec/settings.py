"""How a study is run: what it pursues, how, at what cost, and where results go."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from cbe.clouds import PLACES, cloud_of
from cbe.spec.files import Faults
from cbe.spec.train import Count, Section, Seed, Training

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

MOST = 1000  # configs to confirm, runs of each, seeds, label splits
MOST_TRIALS = 10_000_000

SECRET = re.compile(
    r"://[^/@]+:[^@]*@|[?&][a-z_]*(password|passwd|secret|token|key|credentials|sig)=", re.IGNORECASE
)


class Objective(Section):
    metric: Literal["validation_error", "validation_loss", "parameters", "macs", "wall_s", "test_error"]
    direction: Literal["minimize", "maximize"] = "minimize"


class Sampler(Section):
    name: Literal["tpe", "gp", "cmaes", "nsga2", "random", "grid", "sobol"] = "tpe"
    seed: Seed = 0


class Scheduler(Section):
    """What ends a trial that does not promise much."""

    name: Literal["asha", "hyperband", "pbt", "median", "none"] = "asha"
    grace: Annotated[float, Field(gt=0, lt=1)] | Count = 0.1  # steps, or their share, that every trial gets
    reduction: Annotated[int, Field(ge=2)] = 3

    def grace_steps(self, training: Training) -> int:
        """Steps before a trial may be ended: whole evaluations, and no more than there are.

        >>> Scheduler().grace_steps(Training(steps=1000, eval_every=30))
        120
        """
        # In decimals, since 0.07 × 100 is a little more than 7 in binary.
        steps = self.grace if isinstance(self.grace, int) else Decimal(str(self.grace)) * training.steps
        interval = training.evaluation_interval
        return min(math.ceil(steps / interval) * interval, training.steps)


class Confirm(Section):
    """New runs of the best configs, on seeds and label splits that the search has not seen."""

    configs: Annotated[int, Field(ge=0, le=MOST)] = 3
    runs: Annotated[int, Field(ge=0, le=MOST)] = 5  # of each config; 0: none
    seeds: tuple[Seed, ...] | None = None
    label_splits: tuple[Seed, ...] | None = None

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
                    f"{key} lists {len(listed)} for {self.runs} runs; each run has one of its own"
                )
        pairs = list(zip(self.seeds or (), self.label_splits or (), strict=False))
        if len(set(pairs)) < len(pairs):
            raise ValueError("a seed is listed twice with the same label split; the run would be the same")
        return self


class Budget(Section):
    """Where a study halts, whichever comes first; more trials, hours or money let `cbe resume` go on."""

    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None = None  # null: all points of a grid, else 30
    wall_hours: Positive | None = None  # of one start; the others are of all starts together
    gpu_hours: Positive | None = None
    usd: Positive | None = None


class Resources(Section):
    """What one trial occupies."""

    workers: Count = 1
    gpus: NotNegative | None = None  # a worker's; null: 1 where there are any
    cpus: Positive = 1  # a worker's
    concurrent: Count | None = None  # null: as many trials as fit
    usd_per_hour: NotNegative = 0  # the price of all this

    @field_validator("gpus")
    @classmethod
    def _whole_cards(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and gpus % 1:
            raise ValueError("a worker shares one card (below 1) or has whole ones (1, 2, …)")
        return gpus


class Storage(Section):
    store: Annotated[str, Field(min_length=1)] = "results"  # a local path, s3://…, gs://… or abfs://…
    shared: bool = False  # the store is a local path that all machines of the cluster see, as on NFS
    optuna: str | None = None  # an Optuna storage URL; null: a journal file in the study's folder

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
