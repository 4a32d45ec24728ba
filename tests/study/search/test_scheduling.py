"""Ray's schedulers as a study uses them, told what trials report one by one."""

from __future__ import annotations

from typing import Any, cast

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from cbe.study.search.scheduling import scheduler
from tests.study.conftest import study


def running(number: int) -> Trial:
    made = Trial("_", config={"role": "search", "preset": None}, trial_id=f"{number:08d}", stub=True)
    made.set_status(Trial.RUNNING)
    return made


class Tune:
    """Does what a scheduler says, as Tune's controller does."""

    def __init__(self, **sections: Any) -> None:
        self.copied: list[Trial] = []
        self._scheduler = cast(Any, scheduler(study(**sections)))

    def add(self, count: int) -> list[Trial]:
        trials = [running(number) for number in range(count)]
        for trial in trials:
            self._scheduler.on_trial_add(self, trial)
        return trials

    def report(self, trial: Trial, step: int, error: float = 0.5) -> None:
        trial.set_status(Trial.RUNNING)
        said = self._scheduler.on_trial_result(self, trial, {"step": step, "validation_error": error})
        trial.set_status({TrialScheduler.PAUSE: Trial.PAUSED}.get(said, Trial.RUNNING))
        if said == TrialScheduler.STOP:
            self.stop_trial(trial)

    def get_trials(self) -> list[Trial]:
        return []  # none waits for room

    def _schedule_trial_save(self, trial: Trial, result: object) -> str:
        self.copied.append(trial)  # a population keeps its best for others
        return "checkpoint"

    def stop_trial(self, trial: Trial) -> None:
        trial.set_status(Trial.TERMINATED)
        self._scheduler.on_trial_complete(self, trial, {})

    def fail(self, trial: Trial) -> None:
        trial.set_status(Trial.ERROR)
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


def test_a_population_copies_nobody_who_has_nothing_left_to_train() -> None:
    space = {"search": {"training.lr": {"float": [0.01, 0.1]}}, "training": {"steps": 40, "eval_every": 10}}
    tune = Tune(**space, scheduler={"name": "pbt", "grace": 10})
    good, bad = tune.add(2)
    tune.report(bad, 10, 0.9)
    tune.report(good, 10, 0.1)
    assert tune.copied == [good]
    tune.report(good, 40, 0.1)
    assert tune.copied == [good]
