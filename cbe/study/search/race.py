"""Asynchronous successive halving that promotes (Li et al. 2020): trials pause at rungs, the best go on.

Ray's own ASHA decides once, when a trial reports: those not among the best so far are stopped. Here a trial
waits at its rung with its checkpoint, and goes on as soon as it is among the best 1/reduction of those that
have reached the rung, or has a fair chance to end ahead of all others (`forecast`). So a race saves much
where a rung says much about the end, and drops few where it says little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter

from cbe.study.search.forecast import chances_to_lead

FAIR_CHANCE = 0.2  # of ending ahead of all others, with which a trial goes on


class Race(TrialScheduler):
    """Compares trials at rungs by the objective, all of them on the same seed and label split."""

    _supports_buffered_results = False

    def __init__(
        self,
        rungs: Sequence[int],
        steps: int,
        reduction: int,
        metric: str,
        mode: str,
        judges: Callable[[Trial], bool],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._judges = judges
        self._rungs, self._steps, self._reduction = tuple(rungs), steps, reduction
        self._objective, self._sign = metric, 1 if mode == "min" else -1
        # Values at each rung, lower being better: of trials that are judged, and of those that never are.
        self._scores: list[dict[str, float]] = [{} for _ in rungs]
        self._beside: list[dict[str, float]] = [{} for _ in rungs]
        self._ends: dict[str, float] = {}  # of both
        self._ranking: dict[int, tuple[tuple[int, ...], list[str], int]] = {}  # as it was last
        self._passed: list[set[str]] = [set() for _ in rungs]
        self._paused: dict[str, tuple[Trial, int]] = {}  # those that wait, and at which rung
        self._promoted: dict[str, Trial] = {}  # those that have a place and are about to go on
        self._failed: set[str] = set()
        self._replayed: set[str] = set()  # that have begun before the study was resumed

    def replay(
        self, name: str, curve: Iterable[tuple[int, float]], judged: bool = True, failed: bool = False
    ) -> None:
        """Takes in what a trial had reported before the study was resumed; it may have ended or not."""
        points = list(curve)
        for step, value in points:
            self._note(name, step, value, judged)
        for rung, step in enumerate(self._rungs):
            if judged and sum(at >= step for at, _ in points) > 1:
                self._passed[rung].add(name)
        self._replayed.add(name)
        if failed:
            self._failed.add(name)

    def observe(self, trial: Trial, result: dict[str, Any]) -> None:
        """Takes in a report of a trial that is not judged, on the pair of those that are."""
        self._note(trial_name(trial), result["step"], result.get(self._objective), judged=False)

    def _note(self, name: str, step: int, value: float | None, judged: bool) -> None:
        """The first value at or behind a rung is what counts: a trial that lost its process may repeat it."""
        found = math.nan if value is None else self._sign * float(value)
        for rung, at in enumerate(self._rungs):
            if step >= at:
                (self._scores if judged else self._beside)[rung].setdefault(name, found)
        if step >= self._steps and math.isfinite(found):
            self._ends.setdefault(name, found)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        name = trial_name(trial)
        self._failed.discard(name)  # Tune adds a trial again that it recovers
        for rung, step in enumerate(self._rungs):
            if step < _resumed_after(trial):
                self._passed[rung].add(name)
        if name in self._replayed:
            self._replayed.remove(name)
            self._go_on(tune_controller, trial)

    def _go_on(self, controller: Any, trial: Trial) -> None:
        """A study that was resumed goes on with a trial, which may wait at a rung."""
        name = trial_name(trial)
        reached = (n for n, scores in enumerate(self._scores) if name in scores.keys() - self._passed[n])
        for rung in reached:
            if name not in self._best(rung):
                self._paused[name] = (trial, rung)
                trial.set_status(Trial.PAUSED)  # before Tune has put it down as pending
                if trial.storage is not None:
                    trial.init_local_path()  # Tune asks for it at the end, and it may never start
                self._leave(controller, trial)
                return
            self._passed[rung].add(name)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        name = trial_name(trial)
        self._note(name, result["step"], result.get(self._objective), judged=True)
        for rung, step in enumerate(self._rungs):
            if step > result["step"]:
                break
            if name in self._passed[rung]:
                continue
            if name not in self._best(rung):
                self._paused[name] = (trial, rung)
                self._leave(tune_controller, trial)
                return str(TrialScheduler.PAUSE)
            self._passed[rung].add(name)
        self._promote(tune_controller)  # one more at a rung may be what another one waits for
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if "error_class" in result:
            self._failed.add(trial_name(trial))
        self._forget(trial)
        self._leave(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Tune recovers the trial, in its own place, or tells the searcher itself that the place is free."""
        self._failed.add(trial_name(trial))
        limiter = _limiter(tune_controller)
        if limiter and trial_name(trial) in self._paused:  # lost before its checkpoint was saved
            limiter.live_trials.add(trial.trial_id)
        self._forget(trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        self._forget(trial)
        self._leave(tune_controller, trial)

    def on_others_complete(self, tune_controller: Any, trial: Trial) -> None:
        """A trial that is not judged has ended, and left its place."""
        self._leave(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Who goes on; Tune asks after it has asked the searcher for new trials.

        New trials are started by Tune as soon as they are pending.
        """
        self._promote(tune_controller)
        if not self._may_grow(tune_controller):
            self._settle(tune_controller)
        for name, trial in self._promoted.items():
            if trial.status == Trial.PAUSED:  # else its checkpoint is still being saved
                del self._promoted[name]
                return trial
        return None

    def debug_string(self) -> str:
        passed = ", ".join(f"{len(names)} passed step {step}" for names, step in self._by_step())
        return f"Race: {passed or 'no rungs'}; {len(self._paused)} paused"

    def _by_step(self) -> Iterator[tuple[set[str], int]]:
        return zip(self._passed, self._rungs, strict=True)

    def _best(self, rung: int, least: int = 0) -> list[str]:
        """The trials that may pass a rung, the best first; those that failed are left out."""
        key = (len(self._scores[rung]), len(self._ends), len(self._failed))
        if rung not in self._ranking or self._ranking[rung][0] != key:
            self._ranking[rung] = (key, *self._ranked(rung))
        _, ranked, promising = self._ranking[rung]
        return ranked[: max(least, len(ranked) // self._reduction, promising)]

    def _ranked(self, rung: int) -> tuple[list[str], int]:
        """The trials that have reached a rung, the best first, and how many have a fair chance to lead."""
        scores = {name: at for name, at in self._scores[rung].items() if name not in self._failed}
        ranked = sorted(scores, key=lambda name: (math.isnan(scores[name]), scores[name], name))
        there = {**self._beside[rung], **scores}
        ended = [name for name in self._ends if math.isfinite(there.get(name, math.nan))]
        chances = chances_to_lead(
            np.array([scores[name] for name in ranked]),
            np.array([there[name] for name in ended]),
            np.array([self._ends[name] for name in ended]),
        )
        return ranked, int((chances >= FAIR_CHANCE).sum())

    def _promote(self, controller: Any) -> None:
        """Gives free places to paused trials that are among the best, at the highest rung first."""
        for rung in reversed(range(len(self._rungs))):
            for name in self._best(rung):
                if name in self._paused and self._paused[name][1] == rung:
                    if not _has_place(controller):
                        return
                    self._let_pass(controller, name)

    def _let_pass(self, controller: Any, name: str) -> None:
        trial, rung = self._paused.pop(name)
        self._passed[rung].add(name)
        self._promoted[name] = trial
        if limiter := _limiter(controller):
            limiter.live_trials.add(trial.trial_id)

    def _leave(self, controller: Any, trial: Trial) -> None:
        """A trial leaves its place: to a promoted one, if there is any, before the searcher is asked.

        Tune's limit on concurrent trials would count a paused trial, too, so that after as many of them as
        there are places no new one could start.
        """
        if limiter := _limiter(controller):
            limiter.live_trials.discard(trial.trial_id)
        self._promote(controller)

    def _forget(self, trial: Trial) -> None:
        self._paused.pop(trial_name(trial), None)
        self._promoted.pop(trial_name(trial), None)

    def _may_grow(self, controller: Any) -> bool:
        """Whether new trials may still come.

        A searcher that had a place to fill, and filled none though no trial of the search runs, waits for the
        end of those that are paused.
        """
        search = getattr(controller, "search_alg", None)
        if search is not None and search.is_finished():
            return False
        return bool(self._promoted) or any(self._running(controller)) or not _has_place(controller)

    def _running(self, controller: Any) -> Iterator[Trial]:
        """Trials that are compared here and are on their way; a paused one is so until it is saved."""
        for trial in controller.get_live_trials():
            if self._judges(trial) and trial.status in (Trial.PENDING, Trial.RUNNING):
                yield trial

    def _settle(self, controller: Any) -> None:
        """No trial starts any more: lets the best of each rung pass, one at least, and stops the others.

        A rung waits for those that may still reach it.
        """
        expected = {trial_name(trial) for trial in (*self._running(controller), *self._promoted.values())}
        for rung in range(len(self._rungs)):
            if expected - self._scores[rung].keys() - self._passed[rung]:
                break
            waiting = {name for name, (_, at) in self._paused.items() if at == rung}
            if any(self._paused[name][0].status != Trial.PAUSED for name in waiting):
                break  # the checkpoint of one is still being saved
            best = waiting.intersection(self._best(rung, least=1))
            for name in sorted(waiting - best):
                controller.stop_trial(self._paused[name][0])
            for name in sorted(best):
                if name in self._paused and _has_place(controller):
                    self._let_pass(controller, name)
            if best:
                break


def _limiter(controller: Any) -> ConcurrencyLimiter | None:
    """Tune's limit on concurrent trials; a simulated run has none of Tune's."""
    found = getattr(getattr(controller, "search_alg", None), "searcher", None)
    return found if isinstance(found, ConcurrencyLimiter) else None


def _has_place(controller: Any) -> bool:
    limiter = _limiter(controller)
    return limiter is None or len(limiter.live_trials) < limiter.max_concurrent


def trial_name(trial: Trial) -> str:
    """What we call it; Tune has an id of its own for it at each start of the study."""
    return str(trial.config.get("trial") or trial.trial_id)


def _resumed_after(trial: Trial) -> int:
    """The step of the checkpoint that a resumed study goes on from."""
    resume = trial.config.get("resume")
    return int(Path(resume).stem) if resume else 0
