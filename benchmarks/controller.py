"""Ray Tune's controller without Ray: does what a scheduler says, in the order in which Tune does it.

Whoever plays a study tells it what trials report, and learns from a callback which of them begin and end.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import cbe.environment  # noqa: F401  before Ray

# isort: split
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher


class Controller:
    """Plays trials that are called by the `trial` of their config, so many at once."""

    def __init__(
        self, searcher: Searcher, scheduler: TrialScheduler, at_once: int, callback: Callback | None = None
    ) -> None:
        self.limiter = ConcurrencyLimiter(searcher, at_once)
        self.finished = False  # whether the searcher is
        self.search_alg = SimpleNamespace(searcher=self.limiter, is_finished=lambda: self.finished)
        self.trials: dict[str, Trial] = {}
        self._live: dict[str, Trial] = {}
        self._scheduler, self._callback = cast(Any, scheduler), callback or Callback()

    def get_live_trials(self) -> list[Trial]:
        return list(self._live.values())

    get_trials = get_live_trials

    def stop_trial(self, trial: Trial) -> None:
        """The scheduler ends a trial that waits."""
        assert trial.status == Trial.PAUSED, trial.status
        self._scheduler.on_trial_remove(self, trial)
        self._end(trial)

    @property
    def _now(self) -> dict[str, Any]:
        """What callbacks are told at every call."""
        return {"iteration": 0, "trials": self.get_live_trials()}

    def fill(self) -> None:
        """As much of Tune's step as comes before it waits for reports, until it changes nothing."""
        changed = True
        while changed:
            changed, live = self._ask(), len(self._live)
            chosen = self._scheduler.choose_trial_to_run(self)
            changed |= len(self._live) < live  # it may have stopped some that waited
            if chosen is not None and chosen.status == Trial.PAUSED:
                self._begin(chosen)
                changed = True
            for trial in self.get_live_trials():
                if trial.status == Trial.PENDING:
                    self._begin(trial)
                    changed = True

    def report(self, name: str, result: dict[str, Any], last: bool) -> str:
        """Takes in a report of a trial, its `last` or not; what the scheduler says to it."""
        trial = self.trials[name]
        assert trial.status == Trial.RUNNING, trial.status
        said = str(self._scheduler.on_trial_result(self, trial, result))
        self._callback.on_trial_result(**self._now, trial=trial, result=result)
        if last or said == TrialScheduler.STOP:
            self._scheduler.on_trial_complete(self, trial, result)
            self._end(trial)
        elif said == TrialScheduler.PAUSE:
            trial.set_status(Trial.PAUSED)
        self._callback.on_step_end(**self._now)
        return said

    def _ask(self) -> bool:
        """Has the searcher fill the free places; whether it gave a trial."""
        asked = False
        while not self.finished:
            identity = f"{len(self.trials):08d}"
            given = cast(Any, self.limiter.suggest(identity))
            self.finished = given == Searcher.FINISHED
            if given is None or self.finished:
                break
            trial = Trial("_", config=given, trial_id=identity, trial_name_creator=_name, stub=True)
            self.trials[given["trial"]] = self._live[given["trial"]] = trial
            self._scheduler.on_trial_add(self, trial)
            asked = True
        return asked

    def _begin(self, trial: Trial) -> None:
        trial.set_status(Trial.RUNNING)
        self._callback.on_trial_start(**self._now, trial=trial)

    def _end(self, trial: Trial) -> None:
        self._callback.on_trial_complete(**self._now, trial=trial)
        trial.set_status(Trial.TERMINATED)
        del self._live[_name(trial)]
        self.limiter.on_trial_complete(trial.trial_id)


def _name(trial: Trial) -> str:
    return str(trial.config["trial"])
