"""The thin layer between Ray Tune and the ledger: what to run next, what happened, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
from ray import cloudpickle
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from cbe.study.agenda import Next
from cbe.study.assignment import Assignment
from cbe.study.ledger import Ledger
from cbe.training.launch import lost_its_machine

FORGIVEN = 5  # losses of its machine at one and the same step


class _StaysHere:
    """Tune pickles what it is given, for a restore that we never do: none of this leaves the driver."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Dispatch(_StaysHere, Searcher):
    """Hands out assignments."""

    def __init__(self, following: Callable[[], Next]) -> None:
        super().__init__()
        self._following = following

    def suggest(self, trial_id: str) -> Any:
        upcoming = self._following()
        if isinstance(upcoming, Assignment):
            return upcoming.to_plain()
        return Searcher.FINISHED if upcoming == "finished" else None

    def set_search_properties(self, *args: Any, **spec: Any) -> bool:
        return True

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The ledger hears of it through `Listener`, which Tune tells more."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the store and the sampler's storage know it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, likewise."""


class Listener(_StaysHere, Callback):
    """Tells the ledger what Tune saw."""

    def __init__(self, ledger: Ledger, scheduler: str) -> None:
        self._ledger = ledger
        self._pauses = scheduler in ("pbt", "hyperband", "median", "race")
        self._known: dict[str, Assignment] = {}
        self._reached: dict[str, int] = {}  # the step of each trial's last word
        self._lost: dict[str, list[int]] = {}  # and where it was at each loss of its machine

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._ledger.started(self._of(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        # A population has put another point into the trial's config by now; the report is of the old one.
        known = self._known[str(trial)]
        self._reached[known.trial] = result.get("paused", result.get("step", 0))
        if "paused" in result:
            self._ledger.paused(known.trial, result["paused"])
        else:
            self._ledger.reported(known, result)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if self._pauses:
            for trial in trials:
                if trial.status == Trial.PAUSED:
                    self._ledger.paused(str(trial))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._ledger.ended(self._of(trial), trial.last_result or {})

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        charged = not (lost_its_machine(_error_of(trial)) and self._is_forgiven(str(trial)))
        self._ledger.recovering(self._of(trial), charged)
        if not charged:
            trial.max_failures += 1  # Tune has counted this one

    def _is_forgiven(self, trial: str) -> bool:
        """The loss of a machine is; but one trial that loses all it is put on may be what kills them."""
        at = self._lost.setdefault(trial, [])
        at.append(self._reached.get(trial, 0))
        return at.count(at[-1]) <= FORGIVEN

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        error = _error_of(trial) or trial.get_error()
        cause = getattr(error, "cause", None) or error
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or ["no message"]
        self._ledger.failed(self._of(trial), type(cause).__name__, lines[0])

    def _of(self, trial: Trial) -> Assignment:
        """The trial's assignment; population-based training may have given it another's point."""
        name = str(trial)
        known = self._known.setdefault(name, Assignment.from_plain(trial.config))
        if known.point != trial.config["point"]:
            self._ledger.exploited(known, dict(trial.config["point"]))
            self._known[name] = replace(known, point=dict(trial.config["point"]), number=None)
        return self._known[name]


def _error_of(trial: Trial) -> BaseException | None:
    """What Tune met last: it has just put it down here, and the storage may yet hold an earlier one."""
    path = trial.pickled_error_file
    if path is None or not Path(path).exists():
        return None
    error: BaseException = cloudpickle.loads(Path(path).read_bytes())
    return error


class Halt(_StaysHere, Stopper):
    """Stops everything when the study says so."""

    def __init__(self, halted: Callable[[], bool]) -> None:
        self._halted = halted

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._halted()
