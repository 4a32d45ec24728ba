"""How long and how much on so many GPUs: a study played through with Ray Tune's scheduler on a made-up clock.

Trials are handed out as the agenda does it and take what trials took that are on record; at each of their
reports the scheduler of a real run says who goes on. Machines are those of a cluster that grows from nothing:
one starts when a trial finds no place, and leaves when it has been idle for a while. No Ray is started.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Any, cast

import cbe.environment  # noqa: F401  before Ray

# isort: split
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from cbe.spec import StudyConfig
from cbe.spec.settings import Scheduler
from cbe.spec.terms import PRESETS, Pair, Preset, Role
from cbe.study.budget.plan import START_S
from cbe.study.budget.trial_history import Course, Past
from cbe.study.confirmation import winners
from cbe.study.scaling.machines import Cluster, Machine, Place, SimulatedMachines
from cbe.study.search.scheduling import scheduler
from cbe.study.search.survivors import survivors

HAND_OUT_S = 0.05  # the driver's for each trial, one after the other: the sampler's point, its row, its start


@dataclass(frozen=True)
class Outcome:
    """One replay."""

    wall_s: float
    busy_gpu_s: float
    paid_gpu_s: float  # with the start of machines, and their last idle time
    completed: int  # trials of the search
    pruned: int
    confirmed: int


@dataclass(eq=False)
class _Trial:
    """What Ray's schedulers ask of a trial, and how it goes."""

    trial_id: str
    role: Role
    preset: Preset | None
    config_id: str
    pair: Pair
    course: Course
    status: str = Trial.PENDING
    is_saving: bool = False
    done: int = 0  # reports
    machine: Machine | None = None

    @property
    def config(self) -> dict[str, Any]:
        return {"role": self.role, "preset": self.preset, "pair": self.pair}


def replay(study: StudyConfig, past: Past, cluster: Cluster, seed: int = 0) -> Outcome:
    """One way it may go; the same seed draws the same trials, on however many GPUs."""
    return _Replay(study, past, cluster, random.Random(seed)).run()


def _scheduler(study: StudyConfig) -> Any:
    if study.scheduler.name == "pbt":  # it stops nobody: a trial that copies another goes on as long
        return scheduler(study.model_copy(update={"scheduler": Scheduler(name="none")}))
    made = cast(Any, scheduler(study))
    if study.scheduler.name == "median":  # a mean up to a step that a trial has passed stays what it is
        made._inner._running_mean = cache(made._inner._running_mean)
    return made


class _Replay:
    """A run of a study in which only the clock is made up; to the scheduler it is Tune's controller."""

    def __init__(self, study: StudyConfig, past: Past, cluster: Cluster, rng: random.Random) -> None:
        self._study, self._place = study, Place.of(study)
        self._at_once = self._place.at_once(study, cluster)
        self._machines = SimulatedMachines(cluster, self._place.on_one)
        self._scheduler = _scheduler(study)
        self._metric = study.objectives[0].metric
        self._agenda = self._assignments(past, rng)
        self._live: dict[_Trial, None] = {}  # in the order in which they began
        self._rows: list[dict[str, Any]] = []  # trials that ended, as the ledger has them
        self._events: list[tuple[float, int, _Trial]] = []
        self._number = count()
        self._now = self._driver_free_s = START_S
        self._busy_s = 0.0
        self._leaves_places = study.scheduler.name == "race"
        self._waiting = 0  # live trials that the scheduler has paused

    def run(self) -> Outcome:
        self._fill()
        while self._events:
            self._now, _, trial = heapq.heappop(self._events)
            self._report(trial)
            self._fill()
        self._machines.end()
        ended = Counter((row["role"], row["state"]) for row in self._rows)
        return Outcome(
            wall_s=self._now,
            busy_gpu_s=self._busy_s * self._place.gpus,
            paid_gpu_s=self._machines.paid_s * self._place.machine_gpus,
            completed=ended["search", "completed"],
            pruned=ended["search", "pruned"],
            confirmed=ended["confirm", "completed"],
        )

    def get_trials(self) -> list[_Trial]:
        return list(self._live)

    get_live_trials = get_trials

    def stop_trial(self, trial: _Trial) -> None:
        """The scheduler ends a trial that waits."""
        self._waiting -= 1
        self._scheduler.on_trial_remove(self, trial)
        self._end(trial)

    def _assignments(self, past: Past, rng: random.Random) -> Iterator[_Trial | None]:
        """Trials as the agenda hands them out; None: to wait for the search to end."""
        fixed = PRESETS[: self._study.search_trials]
        yield from self._raced(past, rng) if self._study.is_race else self._searched(past, rng)
        for pair in self._study.confirm_pairs:
            for preset in fixed:
                course = past.draw(preset, 1.0, rng)
                yield _Trial(f"{preset} {pair}", "confirm", preset, preset, pair, course)
        while self._searches:
            yield None
        best = winners(self._study, self._rows)
        for pair in self._study.confirm_pairs:
            for row in best:
                config, course = row["config_id"], row["course"]
                yield _Trial(f"{config} {pair}", "confirm", None, config, pair, course)

    @property
    def _searches(self) -> bool:
        return any(trial.role == "search" for trial in self._live)

    def _searched(self, past: Past, rng: random.Random) -> Iterator[_Trial]:
        """The trials of a search that runs every config on every pair."""
        trials, pairs = self._study.search_trials, self._study.pairs
        for number in range(trials):
            preset = PRESETS[number % 2] if number < 2 * len(pairs) else None
            pair = pairs[number // 2 if preset else number % len(pairs)]
            course = past.draw(preset, number / max(1, trials - 1), rng)
            config = preset or f"sampled {number // len(pairs)}"
            yield _Trial(f"t{number:04d}", "search", preset, config, pair, course)

    def _raced(self, past: Past, rng: random.Random) -> Iterator[_Trial | None]:
        """Those of a race: all on the first pair, and the best on each further one when all have ended."""
        trials, (first, *others) = self._study.search_trials, self._study.pairs
        names = (f"t{number:04d}" for number in range(trials))
        for number, name in enumerate(islice(names, self._study.first_pair_trials)):
            preset = PRESETS[number] if number < 2 else None
            course = past.draw(preset, number / max(1, trials - 1), rng)
            yield _Trial(name, "search", preset, preset or f"sampled {number}", first, course)
        for level, pair in enumerate(others, start=1):
            while self._searches:
                yield None
            courses = {row["config_id"]: row["course"] for row in self._rows}
            chosen = survivors(self._study, self._rows, level)
            going_on = [*PRESETS, *chosen] if chosen else []
            for config, name in zip(going_on, names, strict=False):
                preset = next((each for each in PRESETS if each == config), None)
                yield _Trial(name, "search", preset, config, pair, courses[config])

    def _fill(self) -> None:
        """Begins new trials and lets those go on that wait, as long as there is room."""
        while trial := self._new() or self._going_on() or self._new():  # it may have waited for some to stop
            self._begin(trial)

    def _new(self) -> _Trial | None:
        trial = next(self._agenda, None) if self._has_room else None
        if trial:
            self._live[trial] = None
            self._scheduler.on_trial_add(self, trial)
        return trial

    def _going_on(self) -> _Trial | None:
        """A trial that was paused; the scheduler may also stop some of them."""
        if not self._waiting or (self._leaves_places and not self._has_room):
            return None
        chosen: _Trial | None = self._scheduler.choose_trial_to_run(self)
        self._waiting -= chosen is not None
        return chosen

    @property
    def _has_room(self) -> bool:
        """A trial that a race has paused leaves its place, one of another scheduler does not."""
        waiting = self._waiting if self._leaves_places else 0
        return len(self._live) - waiting < self._at_once

    def _begin(self, trial: _Trial) -> None:
        self._driver_free_s = max(self._now, self._driver_free_s) + HAND_OUT_S
        trial.status, trial.machine = Trial.RUNNING, self._machines.take(self._now)
        self._expect(trial, max(self._driver_free_s, trial.machine.ready_s))

    def _expect(self, trial: _Trial, since_s: float) -> None:
        """Its next report."""
        course, done = trial.course, trial.done
        next_s = course.seconds[done] - (course.seconds[done - 1] if done else 0.0)
        self._busy_s += next_s
        heapq.heappush(self._events, (since_s + next_s, next(self._number), trial))

    def _report(self, trial: _Trial) -> None:
        trial.done += 1
        said = self._scheduler.on_trial_result(self, trial, self._result(trial))
        if said == TrialScheduler.STOP or trial.done == len(trial.course.steps):
            self._scheduler.on_trial_complete(self, trial, self._result(trial))
            self._leave(trial)
            self._end(trial)
        elif said == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED
            self._waiting += 1
            self._leave(trial)
        else:
            self._expect(trial, self._now)

    def _result(self, trial: _Trial) -> dict[str, Any]:
        last = trial.done - 1
        return {"step": trial.course.steps[last], self._metric: trial.course.objective[last]}

    def _leave(self, trial: _Trial) -> None:
        assert trial.machine is not None
        self._machines.give_back(trial.machine, self._now)
        trial.machine = None

    def _end(self, trial: _Trial) -> None:
        trial.status = Trial.TERMINATED
        del self._live[trial]
        done = trial.done == len(trial.course.steps)
        self._rows.append(
            {
                **{"trial": trial.trial_id, "role": trial.role, "preset": trial.preset},
                **{"config_id": trial.config_id, "state": "completed" if done else "pruned"},
                **{"objective": trial.course.objective[trial.done - 1], "course": trial.course},
                **{"seed": trial.pair[0], "label_split": trial.pair[1]},
            }
        )
