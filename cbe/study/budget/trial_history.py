"""How a study's trials may go: as those of a stored study went, or by a probe of a few steps."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np

from cbe.spec import StudyConfig
from cbe.spec.search import values_of
from cbe.spec.terms import PRESETS, Preset, Role
from cbe.store.folder import StudyFolder
from cbe.store.schema import METRICS
from cbe.store.states import OPEN, TRAINED
from cbe.study.budget.plan import COSTLY, TRIAL_S, Probe, rungs, step_seconds

GUESSES = 200  # trials made up of a probe
RECORDED = 500  # trials of a record that are looked at, from its beginning to its end
JUDGED = 20  # evaluations of a trial that a rule which looks at all of them is shown
_TELLING = (*TRAINED, *OPEN)  # what failed says little of what will not


@dataclass(frozen=True)
class Course:
    """A trial to its end, as if nobody stopped it, at the steps where a scheduler judges it."""

    steps: tuple[int, ...]
    seconds: tuple[float, ...]  # since its start
    objective: tuple[float, ...]

    def times(self, factor: float) -> Course:
        return replace(self, seconds=tuple(factor * each for each in self.seconds))


@dataclass(frozen=True)
class Past:
    """Trials to draw from."""

    sampled: tuple[Course, ...]  # in the order in which they began
    fixed: Mapping[Preset, tuple[Course, ...]] = field(default_factory=dict)
    study: str | None = None  # None: a probe
    devices: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()  # keys of other values there that make a step another

    def faster(self, speed: float) -> Past:
        """The same trials on hardware that takes so many times less for all they do."""
        fixed = {preset: tuple(each.times(1 / speed) for each in some) for preset, some in self.fixed.items()}
        return replace(self, sampled=tuple(each.times(1 / speed) for each in self.sampled), fixed=fixed)

    def draw(self, preset: Preset | None, place: float, rng: random.Random) -> Course:
        """A trial like those recorded at this place of the search: a sampler learns as it goes on."""
        some = self.fixed.get(preset, self.sampled) if preset else self.sampled
        near = some if preset else _near(some, place)
        drawn = rng.choice(near)
        # What is drawn twice would be as good twice, and no scheduler could choose between the two.
        offset = 1e-6 * rng.random()
        return replace(drawn, objective=tuple(each + offset for each in drawn.objective))


def _near(some: tuple[Course, ...], place: float) -> tuple[Course, ...]:
    width = min(len(some), max(8, len(some) // 4))
    first = round(place * (len(some) - width))
    return some[first : first + width]


def judged(study: StudyConfig) -> tuple[int, ...]:
    """The evaluations at which the study's scheduler may stop a trial, and the last one."""
    every, end = study.training.evaluation_interval, study.training.steps
    if study.scheduler.name == "median":  # its means are over all of them
        steps = [*range(every, end, every), end]
        return tuple(reversed(steps[:: -math.ceil(len(steps) / JUDGED)]))
    at = (math.ceil(rung.step / every) * every for rung in rungs(study, study.search_trials))
    return tuple(sorted({min(end, step) for step in at}))


def guessed(study: StudyConfig, probe: Probe) -> Past:
    """Trials that take what was measured and are better or worse than others at random."""
    rng, steps, step_s = random.Random(0), judged(study), step_seconds(study, probe)

    def guess() -> Course:
        each_s, value = rng.uniform(step_s.low, step_s.high), rng.random()
        return Course(steps, tuple(TRIAL_S + each_s * step for step in steps), (value,) * len(steps))

    return Past(tuple(guess() for _ in range(GUESSES)), devices=(probe.device,))


@dataclass(frozen=True)
class _Trace:
    """What is recorded of a trial: seconds and objective by step, as far as it got."""

    preset: Preset | None
    role: Role
    total: int  # steps of the whole training
    steps: Any
    seconds: Any
    values: Any

    @property
    def shares(self) -> Any:
        return self.steps / self.total

    def start_s(self, usual_s: float = TRIAL_S) -> float:
        """What its first report took beyond its steps; the usual where there is no second one to tell."""
        if len(self.steps) < 2:
            return float(min(usual_s, self.seconds[0] / 2))
        return float(max(0.0, self.seconds[0] - self.steps[0] * self.step_s(usual_s)))

    def step_s(self, usual_s: float = TRIAL_S) -> float:
        if len(self.steps) < 2:
            return float(self.seconds[0] - self.start_s(usual_s)) / float(self.steps[0])
        return float((self.seconds[-1] - self.seconds[0]) / (self.steps[-1] - self.steps[0]))


def recorded(study: StudyConfig, folder: StudyFolder) -> Past | None:
    """The trials of a stored study, taken to the steps of this one; None where none of them has reported."""
    traces, devices = _traces(study, folder)
    if not traces:
        return None
    others = [each for each in traces if not each.preset]
    traces = [each for each in traces if each.preset] + others[:: math.ceil(len(others) / RECORDED) or 1]
    starts = [each.start_s() for each in traces if len(each.steps) > 1]
    usual_s = median(starts) if starts else TRIAL_S
    searched = [each for each in traces if each.role == "search"]
    steps = judged(study)
    courses = [(each, _course(study, steps, each, searched, usual_s)) for each in traces]
    fixed = {preset: tuple(course for each, course in courses if each.preset == preset) for preset in PRESETS}
    sampled = tuple(course for each, course in courses if not each.preset and each.role == "search")
    other = folder.config()
    return Past(
        sampled or tuple(course for _, course in courses),
        {preset: some for preset, some in fixed.items() if some},
        folder.name,
        devices,
        _differing(study, other) if other else (),
    )


def _traces(study: StudyConfig, folder: StudyFolder) -> tuple[list[_Trace], tuple[str, ...]]:
    metric = study.objectives[0].metric
    in_curves = metric in METRICS.schema.names
    about = ["trial", "role", "preset", "state", "steps", "device", *([] if in_curves else [metric])]
    rows = {row["trial"]: row for row in folder.table("trials", about).to_pylist()}
    columns = list(dict.fromkeys(["trial", "step", "wall_s", *([metric] if in_curves else [])]))
    reports = folder.table("metrics", columns).sort_by([("trial", "ascending"), ("step", "ascending")])
    traces, devices = [], set()
    curves = {name: list(some) for name, some in groupby(reports.to_pylist(), key=lambda each: each["trial"])}
    for name in sorted(curves, key=lambda name: (len(name), name)):  # as they began: t9999 before t10000
        row, curve = rows.get(name), [each for each in curves[name] if each["wall_s"] and each["step"]]
        if row is None or row["state"] not in _TELLING or not row["steps"] or not curve:
            continue
        devices.add(row["device"] or "cpu")
        values = [each[metric] if in_curves else row[metric] for each in curve]
        traces.append(
            _Trace(
                row["preset"],
                row["role"],
                row["steps"],
                np.array([each["step"] for each in curve], float),
                np.maximum.accumulate([each["wall_s"] for each in curve]),
                np.array([math.nan if value is None else value for value in values], float),
            )
        )
    return traces, tuple(sorted(devices))


def _course(
    study: StudyConfig, steps: tuple[int, ...], trace: _Trace, others: list[_Trace], usual_s: float
) -> Course:
    known = np.interp(steps, [0, *trace.steps], [trace.start_s(usual_s), *trace.seconds])
    seconds = known + trace.step_s(usual_s) * np.maximum(0, np.array(steps) - trace.steps[-1])
    shares, values = _to_the_end(trace, others)
    objective = np.interp([step / study.training.steps for step in steps], shares, values)
    return Course(steps, tuple(map(float, seconds)), tuple(map(float, objective)))


def _to_the_end(trace: _Trace, others: list[_Trace]) -> tuple[Any, Any]:
    """The objective over the share of the training; a trial that was stopped goes on as the one nearest to
    it did, and stays as much better or worse."""
    shares, values = trace.shares, trace.values
    while shares[-1] < 1:
        edge, value = shares[-1], values[-1]
        further = [each for each in others if each.shares[-1] > edge and np.isfinite(each.values).all()]
        if not further:
            break
        ahead = {id(each): float(np.interp(edge, each.shares, each.values)) for each in further}
        nearest = min(further, key=lambda each: abs(ahead[id(each)] - value))
        beyond = nearest.shares > edge
        shares = np.concatenate([shares, nearest.shares[beyond]])
        values = np.concatenate([values, nearest.values[beyond] + (value - ahead[id(nearest)])])
    return shares, values


def _differing(study: StudyConfig, other: StudyConfig) -> tuple[str, ...]:
    ours, theirs = values_of(study.base), values_of(other.base)
    keys = [key for key in COSTLY if key != "training.steps" and ours[key] != theirs[key]]
    return (*keys, *(["resources.workers"] if study.resources.workers != other.resources.workers else []))
