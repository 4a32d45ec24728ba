"""A study replayed on a recorded landscape: the real agenda, sampler and scheduler on a made-up clock.

A config that the landscape does not have is answered by the recorded one that is nearest to it and stands for
no other in this replay: two configs never end the same, however near. Each dimension counts by how much it
explains the error on record (`Landscape.check` says how well this works on configs left out). What a run of
the search reports is what was recorded. A run of the confirmation, on a pair that nobody has seen, is drawn:
the config's mean plus a random mixture of its deviations on the recorded pairs. All configs share the normal
weights of the mixture, so that what is drawn has the means and covariances on record.
"""

from __future__ import annotations

import heapq
import json
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, cast

import numpy as np
import optuna
import pyarrow.parquet as pq
from ray.tune import Callback
from ray.tune.callback import CallbackList
from ray.tune.experiment import Trial
from scipy.stats import spearmanr

from benchmarks.controller import Controller
from benchmarks.landscape import FOLDER
from cbe.spec import StudyConfig
from cbe.spec.search import applicable
from cbe.store.folder import DATA_FILE, Store
from cbe.store.recorder import Recorder
from cbe.study.agenda import Agenda
from cbe.study.assignment import Assignment
from cbe.study.dispatch import Dispatch, Listener
from cbe.study.ledger import Ledger
from cbe.study.search.sampling import Sampling
from cbe.study.search.scheduling import scheduler

Array = np.ndarray[Any, Any]
PAPER, BASE = 0, 1  # numbers of the fixed configs on record


class Landscape:
    """Every config of a sample, trained to its end on the same pairs, or half of both."""

    def __init__(self, name: str, half: int | None = None) -> None:
        """`half` 0 is for development, 1 for the final table; None: all configs and pairs."""
        self.name = name
        table = pq.read_table(FOLDER / f"{name}.parquet")
        self.study = StudyConfig.model_validate(json.loads(table.schema.metadata[b"study"]))
        rows = table.to_pylist()
        complete = {row["config"] for row in rows}
        pairs = sorted({row["pair"] for row in rows})
        by_run = {(row["config"], row["pair"]): row for row in rows}
        pairs = [pair for pair in pairs if all((config, pair) in by_run for config in complete)]
        self.configs = [
            config for config in sorted(complete) if config < 2 or half is None or config % 2 == half
        ]
        self.steps: list[int] = rows[0]["step"]
        self.error, self.loss = (
            np.array([[by_run[config, pair][metric] for pair in pairs] for config in self.configs])
            for metric in ("validation_error", "validation_loss")
        )  # config × pair × evaluation
        self.search_pairs = [n for n in range(len(pairs)) if half is None or n % 2 == half]
        values = self.study.values({})
        paper = {key: p.prior.at for key, p in self.study.search.items() if p.prior}
        paper = {
            key: at
            for key, at in paper.items()
            if applicable(key, self.study.search[key], {**values, **paper})
        }
        points = {row["config"]: json.loads(row["point"]) for row in rows}
        self.points = [paper if config == PAPER else points[config] for config in self.configs]

    @property
    def truth(self) -> Array:
        """The mean error of each config at the end, over all recorded pairs."""
        return cast(Array, self.error[:, :, -1].mean(axis=1))

    @cached_property
    def _places(self) -> Array:
        """Each config's coordinates; half way where a dimension does not exist. The base has none."""
        return np.array([self._place(point) for point in self.points])

    def _place(self, point: Mapping[str, Any]) -> list[float]:
        found: list[float] = []
        for key, parameter in self.study.search.items():
            listed = parameter.listed
            if parameter.scale != "category":
                found.append(parameter.to_unit(point[key]) if key in point else 0.5)
            elif all(isinstance(choice, (int, float)) for choice in listed):
                low, high = min(listed), max(listed)
                found.append((point[key] - low) / (high - low) if key in point else 0.5)
            else:
                found += [float(point.get(key) == choice) for choice in listed]
        return found

    def weights(self, of: Sequence[int]) -> Array:
        """How far a dimension counts: its slope in a ridge regression of the logarithm of the error."""
        places, target = self._places[of], np.log(self.truth[of] + 1e-3)
        centred = places - places.mean(axis=0)
        ridge = centred.T @ centred + 0.5 * np.eye(places.shape[1])
        slopes = np.abs(np.linalg.solve(ridge, centred.T @ (target - target.mean())))
        return cast(Array, slopes / slopes.max() + 0.1)

    @cached_property
    def _weights(self) -> Array:
        return self.weights([n for n in range(len(self.configs)) if n != BASE])

    def nearest(self, point: Mapping[str, Any], others: Collection[int] | None = None) -> int:
        """The recorded config, of some or of all, that is nearest to a point."""
        distance = np.abs((self._places - self._place(point)) * self._weights).sum(axis=1)
        distance[BASE] = math.inf
        if others is not None:
            distance[[n for n in range(len(self.configs)) if n not in others]] = math.inf
        return int(distance.argmin())

    def check(self) -> dict[str, float]:
        """How well the rule predicts the true error of configs left out (tenfold, weights fitted anew)."""
        numbers = [n for n in range(len(self.configs)) if n != BASE]
        predicted, kept = np.zeros(len(self.configs)), self.__dict__.get("_weights")
        for part in range(10):
            left = numbers[part::10]
            others = [n for n in numbers if n not in left]
            self.__dict__["_weights"] = self.weights(others)
            for n in left:
                predicted[n] = self.truth[self.nearest(self.points[n], others)]
        self.__dict__.pop("_weights")
        if kept is not None:
            self.__dict__["_weights"] = kept
        true, found = self.truth[numbers], predicted[numbers]
        return {
            "configs": len(numbers),
            "rank correlation": float(spearmanr(true, found).statistic),
            "median error of the error, points": float(100 * np.median(np.abs(true - found))),
        }


class Draw:
    """One replicate: which recorded pairs the search sees, and what is drawn for the others."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._land, rng = landscape, np.random.default_rng(seed)
        self._search = rng.permutation(landscape.search_pairs)
        pairs = landscape.error.shape[1]
        self._mixtures = rng.standard_normal((1000, pairs)) / math.sqrt(pairs - 1)
        self._stands_for: dict[str, int] = {}  # recorded configs by point
        self._free = {*range(len(landscape.configs))} - {BASE}

    def config(self, point: Mapping[str, Any]) -> int:
        """The recorded config that stands for a point: the nearest that stands for no other one."""
        key = json.dumps(point, sort_keys=True)
        if key not in self._stands_for:
            self._stands_for[key] = self._land.nearest(point, self._free or None)
            self._free.discard(self._stands_for[key])
        return self._stands_for[key]

    def curve(self, config: int, number: int, fresh: bool = False) -> list[dict[str, float]]:
        """What a run reports on the search's n-th pair, or on the n-th fresh one."""
        if fresh:
            error, loss = (self._mixed(each[config], number) for each in (self._land.error, self._land.loss))
        else:
            pair = self._search[number]
            error, loss = self._land.error[config, pair], self._land.loss[config, pair]
        return [
            {"step": step, "validation_error": float(e), "validation_loss": float(one)}
            for step, e, one in zip(self._land.steps, error, loss, strict=True)
        ]

    def _mixed(self, runs: Array, number: int) -> Array:
        mean = runs.mean(axis=0)
        return cast(Array, np.maximum(0.0, mean + self._mixtures[number] @ (runs - mean)))


class Replay(Callback):
    """A study on a made-up clock; a step of a trial takes one tick."""

    def __init__(self, study: StudyConfig, landscape: Landscape, seed: int, places: int = 2) -> None:
        self._study, self._land, self._draw = study, landscape, Draw(landscape, seed)
        self._home = tempfile.TemporaryDirectory()
        folder = Store.open(self._home.name).study(study.name)
        folder.write(DATA_FILE, json.dumps({"validation": landscape.study.data.validation}).encode())
        self._recorder = Recorder(folder, flush_s=1e6)  # never: nobody reads it
        sampling = Sampling(study, optuna.storages.InMemoryStorage(), {}, "")
        self.ledger = Ledger(study, self._recorder, sampling, 0.0)
        agenda = Agenda(study, folder, self.ledger)
        told = CallbackList([Listener(self.ledger, study.scheduler.name), self])
        self._controller = Controller(Dispatch(agenda.following), scheduler(study), places, told)
        self._curves: dict[str, list[dict[str, float]]] = {}
        self._done: dict[str, int] = {}
        self._events: list[tuple[int, int, str]] = []
        self._number, self._now = count(), 0
        self.spent = 0  # trial-steps
        self.stands_for: dict[str, int] = {}  # recorded configs by config_id

    def run(self) -> Iterator[int]:
        """Plays the study to its end; yields the trial-steps so far after every trial that ends."""
        self._controller.fill()
        while self._events:
            self._now, _, name = heapq.heappop(self._events)
            self._report(name)
            if self._controller.trials[name].is_finished():
                yield self.spent
            self._controller.fill()
        self._recorder._closing.set()
        self._home.cleanup()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        if str(trial) not in self._curves:
            self._curves[str(trial)], self._done[str(trial)] = self._curve(trial), 0
        self._expect(str(trial))

    def _curve(self, trial: Trial) -> list[dict[str, float]]:
        given = Assignment.from_plain(trial.config)
        config = {"paper": PAPER, "base": BASE}.get(given.preset or "", -1)
        if config < 0:  # what is not searched is the paper's
            config = self._draw.config({**self._land.points[PAPER], **given.point})
        self.stands_for[self.ledger.rows[given.trial]["config_id"]] = config
        fresh = given.role == "confirm"
        pairs = self._study.confirm_pairs if fresh else self._study.pairs
        return self._draw.curve(config, pairs.index(given.pair), fresh)

    def _expect(self, name: str) -> None:
        """The next report of a trial."""
        curve, done = self._curves[name], self._done[name]
        steps = int(curve[done]["step"] - (curve[done - 1]["step"] if done else 0))
        self.spent += steps
        heapq.heappush(self._events, (self._now + steps, next(self._number), name))

    def _report(self, name: str) -> None:
        result: dict[str, Any] = self._curves[name][self._done[name]]
        self._done[name] += 1
        self._controller.report(name, result, last=self._done[name] == len(self._curves[name]))
        if self._controller.trials[name].status == Trial.RUNNING:
            self._expect(name)
