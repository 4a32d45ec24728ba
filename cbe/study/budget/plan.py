"""What a study will take: trials, steps, hours and money, before anything is started."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from cbe.data import Dataset, open_dataset, open_pool
from cbe.errors import InputError
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import config_id
from cbe.spec.terms import PRESETS
from cbe.ssl import resolve
from cbe.study.trial.process import use_resources
from cbe.training.evaluate import Evaluator
from cbe.training.loop import Snapshot
from cbe.training.run import Run
from cbe.training.step import train_step

START_S = 15.0  # Ray and the first trial's process
TRIAL_S = 1.0  # what a trial takes beside its steps: images, network, its place in the queue
REPEATS = 3  # of the measured steps, for their spread
WARM_UP = 2  # steps that allocate and compile
ENOUGH_S = 1.0  # of steps in one repeat

# Searched keys that make a step, or the number of steps, another than that of the configs measured.
COSTLY = (
    *("data.size", "data.channels", "data.validation", "model.name", "ensemble.kind", "method.name"),
    *("loss.labeled_views", "training.steps", "training.batch_size", "training.unlabeled_ratio"),
    *("training.forward", "training.randaugment", "training.eval_every", "training.precision"),
)

Reached = Literal["no", "maybe", "yes"]


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    def times(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)

    def plus(self, amount: float) -> Range:
        return Range(self.low + amount, self.high + amount)

    @classmethod
    def of(cls, values: list[float]) -> Range:
        return cls(min(values), max(values))


@dataclass(frozen=True)
class Probe:
    """Seconds measured on this machine: the least and the most of the configs and repeats."""

    step_s: Range
    evaluation_s: Range
    checkpoint_s: Range
    device: str = "cpu"


@dataclass(frozen=True)
class Rung:
    """Where the scheduler compares trials: a step, and how many are expected to get there and may."""

    step: int
    low: int
    high: int


@dataclass(frozen=True)
class Plan:
    study: str
    trials: int  # of the search
    confirm_runs: int
    rungs: tuple[Rung, ...]  # the last is the end of the training
    steps: Range  # of the search and the confirmation
    concurrent: int
    varies: tuple[str, ...]  # searched keys that change what a step takes, beyond what was measured
    wall_s: Range | None = None  # None where nothing was measured, as all below
    trial_hours: Range | None = None
    gpu_hours: Range | None = None
    usd: Range | None = None
    budget: dict[str, Reached] = field(default_factory=dict)  # whether a limit ends the study before its end
    probe: Probe | None = None

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def plan(study: StudyConfig, *, concurrent: int, probe: Probe | None = None) -> Plan:
    """What a study takes with `concurrent` trials at once; without a probe, in steps only."""
    trials, confirm = study.search_trials, study.confirm_runs
    ladder = rungs(study, trials)
    searched = _search_steps(ladder)
    bare = Plan(
        study=study.name,
        trials=trials,
        confirm_runs=confirm,
        rungs=ladder,
        steps=searched.plus(confirm * study.training.steps),
        concurrent=concurrent,
        varies=_varies(study),
    )
    if probe is None:
        return bare
    step_s = step_seconds(study, probe)
    one_s = step_s.times(study.training.steps).plus(TRIAL_S)
    busy_s = Range(searched.low * step_s.low, searched.high * step_s.high).plus(trials * TRIAL_S)
    busy_s = Range(busy_s.low + one_s.low * confirm, busy_s.high + one_s.high * confirm)
    wall_s = _wall_s(busy_s, one_s, stages=2 if confirm else 1, concurrent=concurrent)
    trial_hours = busy_s.times(1 / 3600)
    gpu_hours, usd = trial_hours.times(_gpus(study, probe)), trial_hours.times(study.resources.usd_per_hour)
    taken = {"wall_hours": wall_s.times(1 / 3600), "gpu_hours": gpu_hours, "usd": usd}
    return replace(
        bare,
        wall_s=wall_s,
        trial_hours=trial_hours,
        gpu_hours=gpu_hours,
        usd=usd,
        budget=reached(study, taken),
        probe=probe,
    )


def rungs(study: StudyConfig, trials: int) -> tuple[Rung, ...]:
    """The steps at which trials may be stopped, and how many get so far: as expected, and at most."""
    chosen, end = study.scheduler, study.training.steps
    first = chosen.grace_steps(study.training)
    if chosen.name == "hyperband":
        return _hyperband(study, trials)
    if chosen.name == "race":
        return _race(study, trials)
    if chosen.name == "median" and first < end:
        return (Rung(first, trials, trials), Rung(end, math.ceil(trials / 2), trials))
    if chosen.name != "asha":  # a population copies its best, and trains all to the end
        return (Rung(end, trials, trials),)
    steps = []
    while first < end:
        steps.append(first)
        first *= chosen.reduction
    return tuple(
        Rung(step, math.ceil(trials / chosen.reduction**i), trials) for i, step in enumerate([*steps, end])
    )


def _race(study: StudyConfig, trials: int) -> tuple[Rung, ...]:
    """Sampled trials on the first pair wait at rungs; all others run to the end."""
    first = min(trials, study.first_pair_trials) if study.is_race else trials
    fixed = min(first, len(PRESETS) * (1 if study.is_race else len(study.pairs)))
    steps, reduction = study.scheduler.rung_steps(study.training), study.scheduler.reduction
    return tuple(
        Rung(step, trials - first + fixed + math.ceil((first - fixed) / reduction**i), trials)
        for i, step in enumerate([*steps, study.training.steps])
    )


def _hyperband(study: StudyConfig, trials: int) -> tuple[Rung, ...]:
    """As Ray does it: the first bracket stops nobody, every other one starts its trials at shorter runs."""
    end, interval = study.training.steps, study.training.evaluation_interval
    reduction = study.scheduler.reduction
    most = round(math.log(end) / math.log(reduction)) + 1
    brackets: list[list[tuple[int, int]]] = []  # of each: steps, and how many trials get so far
    left, depth = trials, 0
    while left > 0:
        room = math.ceil(most / (depth + 1) * reduction**depth) if reduction**depth <= end else 0
        started = min(left, room)
        left -= started
        bracket = []
        for rung in range(depth + 1):
            step = min(end, math.ceil(end / reduction ** (depth - rung) / interval) * interval)
            bracket.append((step, min(started, math.ceil(room / reduction**rung))))
        brackets.append(bracket)
        depth = (depth + 1) % most
    steps = sorted({step for bracket in brackets for step, _ in bracket})
    # Who is stopped at a later step has passed the earlier ones.
    passed = [sum(max(n for at, n in bracket if at >= step) for bracket in brackets) for step in steps]
    return tuple(Rung(step, count, trials) for step, count in zip(steps, passed, strict=True))


def _varies(study: StudyConfig) -> tuple[str, ...]:
    heads = ("ensemble.heads",) if study.ensemble.kind == "model" else ()  # each is a network of its own
    return tuple(key for key in study.search if key in (*COSTLY, *heads))


def _search_steps(ladder: tuple[Rung, ...]) -> Range:
    before = [0, *(rung.step for rung in ladder)]
    stretches = [(rung, rung.step - last) for rung, last in zip(ladder, before, strict=False)]
    return Range(sum(r.low * steps for r, steps in stretches), sum(r.high * steps for r, steps in stretches))


def step_seconds(study: StudyConfig, probe: Probe) -> Range:
    """A step with its share of an evaluation and a checkpoint; at best several workers share all of it."""
    interval, workers = study.training.evaluation_interval, study.resources.workers
    low = (probe.step_s.low + probe.evaluation_s.low / interval) / workers
    high = probe.step_s.high + probe.evaluation_s.high / interval
    return Range(low + probe.checkpoint_s.low / interval, high + probe.checkpoint_s.high / interval)


def _wall_s(busy_s: Range, one_s: Range, stages: int, concurrent: int) -> Range:
    """At least all places are busy all the time; at most each stage waits for one trial that starts last."""
    low = max(busy_s.low / concurrent, one_s.low)
    high = busy_s.high / concurrent + stages * one_s.high * (1 - 1 / concurrent)
    return Range(low, high).plus(START_S)


def _gpus(study: StudyConfig, probe: Probe) -> float:
    each = study.resources.gpus if study.resources.gpus is not None else float(probe.device != "cpu")
    return each * study.resources.workers


def reached(study: StudyConfig, taken: dict[str, Range]) -> dict[str, Reached]:
    """Of each limit that the budget has, whether so much spends it."""
    limits = {name: limit for name in taken if (limit := getattr(study.budget, name)) is not None}
    return {
        name: "yes" if taken[name].low >= limit else "maybe" if taken[name].high >= limit else "no"
        for name, limit in limits.items()
    }


def whole(have: float, each: float) -> int:
    """How many times `each` fits; ten tenths are one.

    >>> whole(1, 0.1)
    10
    """
    return math.floor(have / each + 1e-9)


def local_concurrency(study: StudyConfig) -> int:
    """How many trials this machine holds at once; refuses a study that does not fit on it."""
    wanted, cores, cards = study.resources, os.cpu_count() or 1, torch.cuda.device_count()
    gpus = wanted.gpus if wanted.gpus is not None else float(cards > 0)
    fits = whole(cores, wanted.workers * wanted.cpus)
    if gpus:
        fits = min(fits, whole(cards, wanted.workers * gpus))
    if fits < 1 and wanted.concurrent is None:
        raise InputError(
            f"resources: a trial wants {wanted.workers} × ({wanted.cpus:g} CPU, {gpus:g} GPU), this machine "
            f"has {cores} CPU and {cards} GPU; ask for less, or give --concurrent for a cluster"
        )
    return min(fits, wanted.concurrent or fits) if fits >= 1 else wanted.concurrent or 1


def measure(study: StudyConfig, steps: int = 5, say: Callable[[str], None] | None = None) -> Probe:
    """Trains the paper's config, the base and the file's own for a few steps on this machine."""
    say, pair, threads = say or (lambda line: None), study.pairs[0], torch.get_num_threads()
    fixed = {
        "the paper's config": study.paper_config(*pair),
        "the base": study.base_config(*pair),
        "the file's own config": study.train_config({}, *pair),
    }
    named = {config_id(config): (name, config) for name, given in fixed.items() if (config := resolve(given))}
    pool = open_pool(study.data, say)
    use_resources(study)
    timed = []
    try:
        for number, (name, config) in enumerate(named.values(), start=1):
            say(f"Measuring {name} ({number} of {len(named)}): some steps, an evaluation, a checkpoint …")
            timed.append(_measure(config, open_dataset(config.data, pool=pool), steps))
            say(f"{name}: {1000 * min(timed[-1][0]):,.0f} ms a step")
    finally:
        torch.set_num_threads(threads)
    step_s, evaluation_s, checkpoint_s = (Range.of([s for one in timed for s in one[i]]) for i in range(3))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return Probe(step_s, evaluation_s, checkpoint_s, device)


def _measure(config: TrainConfig, data: Dataset, most: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of a step, of an evaluation and of a checkpoint, each as often as it was tried."""
    run = Run(config, data)

    def some(count: int) -> None:
        for _ in range(count):
            train_step(run)
        run.meter.read()  # waits for the device

    warm_s = [_seconds(lambda: some(1)) for _ in range(WARM_UP)]
    count = max(1, min(most, int(ENOUGH_S / warm_s[-1])))  # slow steps need no mean of several
    step_s = [_seconds(lambda: some(count)) / count for _ in range(REPEATS)]
    evaluation_s = [_seconds(Evaluator(run))]
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_s = [_seconds(lambda: Snapshot(run, []).save(Path(folder) / "checkpoint.pt"))]
    return step_s, evaluation_s, checkpoint_s


def _seconds(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started
