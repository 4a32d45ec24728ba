"""How long and how much on so many GPUs: the spread of what several simulations give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import numpy as np

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.study.budget.plan import Range, Reached, reached
from cbe.study.budget.simulation import replay
from cbe.study.budget.trial_history import Past
from cbe.study.scaling.machines import IDLE_S, NODE_START_S, Cluster, Place

REPLAYS = 20
MOST_SIMULATED = 10_000


@dataclass(frozen=True)
class Outlook:
    """What so many GPUs would give: the tenth to the ninetieth percentile of all replays."""

    gpus: int
    trials_at_once: int
    wall_s: Range
    busy_gpu_hours: Range
    paid_gpu_hours: Range
    utilisation: float  # busy of paid
    usd: Range
    budget: dict[str, Reached] = field(default_factory=dict)


@dataclass(frozen=True)
class Forecast:
    study: str
    trials: int
    confirm_runs: int
    like: str | None  # the study on record; None: a probe of this machine
    recorded: int  # trials to draw from
    devices: tuple[str, ...]
    differs: tuple[str, ...]
    speed: float  # times that of the record
    node_start_s: float
    idle_s: float
    replays: int
    outlooks: tuple[Outlook, ...]

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def forecast(
    study: StudyConfig,
    past: Past,
    gpus: Sequence[int],
    *,
    node_start_s: float = NODE_START_S,
    idle_s: float = IDLE_S,
    usd_per_gpu_hour: float | None = None,
    speed: float = 1.0,
    replays: int | None = None,
) -> Forecast:
    """What a study takes on each of these numbers of GPUs; a large one is replayed less often."""
    faster, trials = past.faster(speed), study.search_trials
    if trials > MOST_SIMULATED:
        raise InputError(
            f"budget.trials: {trials:,} are more than can be played through; "
            f"wanted at most {MOST_SIMULATED:,}; give --trials fewer, and multiply"
        )
    replays = replays or max(5, min(REPLAYS, MOST_SIMULATED // trials))
    outlooks = [
        _outlook(study, faster, Cluster(each, node_start_s, idle_s), usd_per_gpu_hour, replays)
        for each in gpus
    ]
    return Forecast(
        study=study.name,
        trials=trials,
        confirm_runs=study.confirm_runs,
        like=past.study,
        recorded=len(past.sampled),
        devices=past.devices,
        differs=past.differs,
        speed=speed,
        node_start_s=node_start_s,
        idle_s=idle_s,
        replays=replays,
        outlooks=tuple(outlooks),
    )


def _outlook(
    study: StudyConfig, past: Past, cluster: Cluster, usd_per_gpu_hour: float | None, replays: int
) -> Outlook:
    place = Place.of(study)
    found = [replay(study, past, cluster, seed) for seed in range(replays)]
    usd_per_gpu_hour = (
        study.resources.usd_per_hour / place.gpus if usd_per_gpu_hour is None else usd_per_gpu_hour
    )
    wall_s, busy, paid = (
        _middle([getattr(each, name) for each in found]) for name in ("wall_s", "busy_gpu_s", "paid_gpu_s")
    )
    usd, paid_h = paid.times(usd_per_gpu_hour / 3600), paid.times(1 / 3600)
    return Outlook(
        gpus=cluster.gpus,
        trials_at_once=place.at_once(study, cluster),
        wall_s=wall_s,
        busy_gpu_hours=busy.times(1 / 3600),
        paid_gpu_hours=paid_h,
        utilisation=median(each.busy_gpu_s / each.paid_gpu_s for each in found),
        usd=usd,
        budget=reached(study, {"wall_hours": wall_s.times(1 / 3600), "gpu_hours": paid_h, "usd": usd}),
    )


def _middle(values: list[float]) -> Range:
    low, high = np.percentile(values, [10, 90])
    return Range(float(low), float(high))
