"""Ray's schedulers as a study uses them, told what trials report one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from cbe.study.scheduling import scheduler
from tests.study.conftest import study


@dataclass(eq=False)
class Running:
    """What schedulers ask of a trial."""

    trial_id: str
    status: str = Trial.RUNNING
    is_saving: bool = False
    config: dict[str, Any] = field(default_factory=lambda: {"role": "search", "preset": None})


class Tune:
    """Does what a scheduler says, as Tune's controller does."""

    def __init__(self, **sections: Any) -> None:
        self._scheduler = cast(Any, scheduler(study(**sections)))

    def add(self, count: int) -> list[Running]:
        trials = [Running(str(number)) for number in range(count)]
        for trial in trials:
            self._scheduler.on_trial_add(self, trial)
        return trials

    def report(self, trial: Running, step: int, error: float = 0.5) -> None:
        trial.status = Trial.RUNNING
        said = self._scheduler.on_trial_result(self, trial, {"step": step, "validation_error": error})
        trial.status = {TrialScheduler.PAUSE: Trial.PAUSED}.get(said, Trial.RUNNING)
        if said == TrialScheduler.STOP:
            self.stop_trial(trial)

    def stop_trial(self, trial: Running) -> None:
        trial.status = Trial.TERMINATED
        self._scheduler.on_trial_complete(self, trial, {})

    def fail(self, trial: Running) -> None:
        trial.status = Trial.ERROR
        self._scheduler.on_trial_error(self, trial)


HYPERBAND = {"scheduler": {"name": "hyperband", "reduction": 2}, "training": {"steps": 40, "eval_every": 10}}


def test_a_hyperband_ends_who_waits_for_a_trial_that_fails() -> None:
    tune = Tune(**HYPERBAND)
    *_, first, second, third, fourth, fifth, sixth = tune.add(12)  # the first six are judged by nobody
    for error, trial in enumerate((first, second, third, fourth, fifth, sixth)):
        tune.report(trial, 20, error)
    assert [each.status for each in (fourth, fifth, sixth)] == [Trial.TERMINATED] * 3
    tune.report(first, 40)
    tune.report(second, 40)
    assert (first.status, second.status) == (Trial.PAUSED, Trial.PAUSED)  # until the third is there, too
    tune.fail(third)
    assert (first.status, second.status) == (Trial.TERMINATED, Trial.TERMINATED)


def test_a_hyperband_judges_an_evaluation_that_passes_several_rungs_by_all_of_them() -> None:
    tune = Tune(**HYPERBAND)
    *_, first, second, third, fourth = tune.add(16)  # of a bracket with rungs at 10, 20 and 40
    for error, trial in enumerate((first, second, third, fourth)):
        tune.report(trial, 30, error)
    states = [trial.status for trial in (first, second, third, fourth)]
    assert states == [Trial.PAUSED, Trial.PAUSED, Trial.TERMINATED, Trial.TERMINATED]
