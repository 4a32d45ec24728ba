"""The scheduler race without Ray: trials pause at rungs, the best go on, and nobody waits for ever."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from benchmarks.controller import Controller
from cbe.study.search.scheduling import Curve, scheduler
from tests.study.conftest import study

RACE: dict[str, Any] = {
    "scheduler": {"name": "race", "reduction": 3, "rungs": [0.16, 0.33]},  # steps 10 and 20
    "training": {"steps": 60, "eval_every": 10},
}
PAIR = (0, 0)


def config(name: str, pair: tuple[int, int] = PAIR, **others: Any) -> dict[str, Any]:
    return {"trial": name, "role": "search", "preset": None, "pair": pair, "resume": None, **others}


class Agenda(Searcher):
    """Hands out configs; then it waits, as a study does before its confirmation, or says that it is done."""

    def __init__(self, configs: Iterable[dict[str, Any]], waits: bool) -> None:
        super().__init__()
        self._configs, self._waits = list(configs), waits

    def suggest(self, trial_id: str) -> Any:
        if self._configs:
            return self._configs.pop(0)
        return None if self._waits else Searcher.FINISHED

    def on_trial_complete(self, *args: Any, **options: Any) -> None:
        pass


class Tune(Callback):
    """A race whose trials report when a test says so."""

    def __init__(
        self,
        configs: Iterable[dict[str, Any]],
        at_once: int = 1,
        waits: bool = True,
        curves: Any = (),
        **sections: Any,
    ) -> None:
        self.scheduler = scheduler(study(**{**RACE, **sections}), curves)
        self.controller = Controller(Agenda(configs, waits), self.scheduler, at_once, self)
        self.trials = self.controller.trials
        self.step: Counter[str] = Counter()
        self.order: list[str] = []  # in which trials began and went on

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.order.append(trial.config["trial"])
        assert len(self.running) <= self.controller.limiter.max_concurrent

    def fill(self) -> None:
        self.controller.fill()

    def report(self, name: str, error: float, **others: Any) -> str:
        self.step[name] += 10
        result = {"step": self.step[name], "validation_error": error, **others}
        said = self.controller.report(name, result, self.step[name] == 60 or "error_class" in result)
        self.fill()
        return said

    def play(self, error: Callable[[str], float]) -> None:
        """Lets all trials report in turns until nothing runs."""
        self.fill()
        while running := self.running:
            for name in running:
                self.report(name, error(name))

    def to_the_end(self, name: str, *errors: float) -> None:
        """Lets a trial report until it ends, as its last error from some point on."""
        for number in range(6 - self.step[name] // 10):
            self.report(name, errors[min(number, len(errors) - 1)])

    @property
    def running(self) -> list[str]:
        return [name for name, trial in self.trials.items() if trial.status == Trial.RUNNING]

    @property
    def ended_at(self) -> dict[str, int]:
        return {name: self.step[name] for name, trial in self.trials.items() if trial.is_finished()}


def of(count: int, **others: Any) -> list[dict[str, Any]]:
    return [config(f"t{number:04d}", **others) for number in range(count)]


def number(name: str) -> float:
    return float(name[1:])


def test_the_best_of_three_goes_on_before_a_new_trial_starts() -> None:
    tune = Tune(of(5))
    tune.fill()
    assert tune.report("t0000", 0.1) == TrialScheduler.PAUSE and tune.running == ["t0001"]
    tune.report("t0001", 0.2)
    assert tune.report("t0002", 0.3) == TrialScheduler.PAUSE
    assert tune.order == ["t0000", "t0001", "t0002", "t0000"] and tune.step["t0000"] == 10


def test_a_trial_that_is_among_the_best_at_its_report_goes_on_at_once() -> None:
    tune = Tune(of(3))
    tune.fill()
    tune.report("t0000", 0.3)
    tune.report("t0001", 0.2)
    assert tune.report("t0002", 0.1) == TrialScheduler.CONTINUE and tune.running == ["t0002"]


def test_a_promoted_trial_takes_the_place_of_one_that_ends() -> None:
    tune = Tune([config("t0000", preset="paper"), *of(8)[1:]], at_once=2)
    tune.fill()
    for name in ("t0001", "t0002"):
        tune.report(name, number(name))
    assert tune.report("t0003", 0.0) == TrialScheduler.CONTINUE
    for name in ("t0003", "t0003", "t0003", "t0003", "t0003"):  # its rung at 20 has nobody else
        if tune.trials[name].status == Trial.RUNNING:
            tune.report(name, 0.0)
    before = len(tune.order)
    for _ in range(6):
        tune.report("t0000", 9.0)
    assert tune.trials["t0000"].status == Trial.TERMINATED and len(tune.order) == before + 1


def test_pausing_trials_leave_their_places_to_others() -> None:
    tune = Tune(of(9), at_once=2)
    tune.play(number)
    assert len(tune.ended_at) == 9 and not tune.controller.limiter.live_trials


def test_runs_on_further_pairs_are_neither_stopped_nor_compared() -> None:
    further = [config(f"t{n:04d}", (1, 1)) for n in range(3)]
    tune = Tune([*further, *(config(f"t{n:04d}") for n in range(3, 6))], at_once=6)
    tune.fill()
    for name in ("t0000", "t0001", "t0002"):
        assert tune.report(name, 0.0) == TrialScheduler.CONTINUE
    for name in ("t0003", "t0004"):
        assert tune.report(name, number(name)) == TrialScheduler.PAUSE
    tune.report("t0005", 5.0)
    assert tune.order[-1] == "t0003"  # the third on the first pair has come: it is the best of them


def test_a_grid_compares_trials_on_its_first_pair_only() -> None:
    grid = {"sampler": "grid", "search": {"loss.weights.lb": [0.5, 1.0, 2.0]}, "seeds": [0, 1], "budget": {}}
    tune = Tune([config("t0000", (1, 0)), config("t0001")], at_once=2, **grid)
    tune.fill()
    assert tune.report("t0000", 9.0) == TrialScheduler.CONTINUE
    assert tune.report("t0001", 0.0) == TrialScheduler.PAUSE


@pytest.mark.parametrize("name", ["race", "asha", "median", "hyperband"])
def test_fixed_configs_and_confirmations_are_never_judged(name: str) -> None:
    others = [
        config("t0000", preset="paper"),
        config("t0001", preset="base"),
        config("c0000", role="confirm"),
    ]
    rivals = [config(f"t{n:04d}") for n in range(2, 8)]
    tune = Tune([*others, *rivals], at_once=9, scheduler={"name": name, "reduction": 3})
    tune.fill()
    for _ in range(6):
        for rival in [each for each in tune.running if each not in ("t0000", "t0001", "c0000")]:
            tune.report(rival, 0.1, validation_error=0.1)
        for fixed in ("t0000", "t0001", "c0000"):
            assert tune.report(fixed, 9.0, validation_error=0.9) == TrialScheduler.CONTINUE
    assert {tune.ended_at[each] for each in ("t0000", "t0001", "c0000")} == {60}


def test_an_error_that_is_not_a_number_ranks_last() -> None:
    tune = Tune(of(3))
    tune.fill()
    tune.report("t0000", math.nan)
    tune.report("t0001", 7.0)
    tune.report("t0002", 8.0)
    assert tune.order[-1] == "t0001"


def test_of_equals_the_first_by_name_goes_on() -> None:
    tune = Tune([config(name) for name in ("t0002", "t0001", "t0000")])
    tune.fill()
    for name in ("t0002", "t0001"):
        tune.report(name, 0.5)
    assert tune.report("t0000", 0.5) == TrialScheduler.CONTINUE


def test_trials_are_compared_by_the_objective() -> None:
    by_error, by_loss = Tune(of(3)), Tune(of(3), objective="validation_loss")
    upside_down = Tune(of(3), objective={"metric": "validation_error", "direction": "maximize"})
    for tune in (by_error, by_loss, upside_down):
        tune.fill()
        tune.report("t0000", 0.8, validation_loss=0.1)
        tune.report("t0001", 0.9, validation_loss=0.2)
        tune.report("t0002", 0.1, validation_loss=0.3)
    assert by_error.running == ["t0002"]
    assert [tune.order[-1] for tune in (by_loss, upside_down)] == ["t0000", "t0001"]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("at_once", [1, 2, 4, 20])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_no_trial_is_left_waiting_and_the_best_comes_to_the_end(
    count: int, at_once: int, waits: bool
) -> None:
    tune = Tune(of(count), at_once, waits)
    tune.play(lambda name: (number(name) * 7) % 20)
    assert len(tune.ended_at) == count and tune.ended_at.keys() == tune.trials.keys()
    best = min(tune.trials, key=lambda name: (number(name) * 7) % 20)
    assert tune.ended_at[best] == 60
    at = Counter(tune.ended_at.values())
    assert at.keys() <= {10, 20, 60}
    passed_first, passed_second = at[20] + at[60], at[60]
    assert passed_first >= max(1, count // 3) and passed_second >= max(1, passed_first // 3)
    assert count < 20 or at[10] > at[60]


def test_who_waits_is_not_dropped_while_a_trial_may_reach_the_rung() -> None:
    tune = Tune(of(3), at_once=3, waits=False)
    tune.fill()
    tune.report("t0000", 0.1)
    tune.report("t0001", 0.2)
    assert (
        tune.controller.finished
        and [tune.trials[name].status for name in ("t0000", "t0001")] == [Trial.PAUSED] * 2
    )
    tune.report("t0002", 0.3)
    assert tune.running == ["t0000"] and tune.ended_at == {"t0001": 10, "t0002": 10}


def test_a_failed_trial_gives_way_to_the_next() -> None:
    tune = Tune(of(3))
    tune.fill()
    tune.report("t0000", 0.2)
    tune.report("t0001", 0.3)
    assert tune.report("t0002", 0.1) == TrialScheduler.CONTINUE
    tune.report("t0002", 0.1, error_class="OutOfMemory")
    tune.play(number)
    assert tune.ended_at == {"t0000": 60, "t0001": 10, "t0002": 20}


def test_a_trial_that_is_recovered_keeps_what_it_has_passed() -> None:
    tune = Tune(of(3))
    tune.fill()
    tune.report("t0000", 0.2)
    tune.report("t0001", 0.3)
    tune.report("t0002", 0.1)
    trial = tune.trials["t0002"]
    tune.scheduler.on_trial_error(tune.controller, trial)
    tune.scheduler.on_trial_add(tune.controller, trial)
    tune.step["t0002"] = 0
    assert tune.report("t0002", 9.0) == TrialScheduler.CONTINUE  # of its rung again


def test_a_resumed_study_compares_with_the_trials_it_had() -> None:
    past = [Curve(f"t{n:04d}", [(10, error)], PAIR) for n, error in enumerate((0.3, 0.4, 0.5, 0.6, 0.7))]
    new = [config("t0005"), config("t0006")]
    for error, said in ((0.35, TrialScheduler.CONTINUE), (0.45, TrialScheduler.PAUSE)):
        tune = Tune(new, curves=past)
        tune.fill()
        assert tune.report("t0005", error) == said


def test_curves_of_an_objective_alone_are_compared_by_it_and_only_those_on_the_first_pair() -> None:
    past = [(f"t{n:04d}", [(10, error)]) for n, error in enumerate((0.1, 0.5, 0.6, 0.7, 0.8))]
    for pair, said in ((PAIR, TrialScheduler.CONTINUE), ((1, 1), TrialScheduler.PAUSE)):
        tune = Tune([config("t0005")], curves=[Curve(*each, pair) for each in past])
        tune.fill()
        assert tune.report("t0005", 0.2) == said


def test_a_trial_that_a_resumed_study_goes_on_with_is_not_judged_at_rungs_behind_it() -> None:
    past = [Curve(f"t{n:04d}", [(10, 0.5), (20, 0.5)], PAIR) for n in range(5)]
    went_on = config("t0005", resume="checkpoints/t0005/000000030.pt")
    waited = config("t0006", resume="checkpoints/t0006/000000010.pt")
    tune = Tune([went_on, waited], at_once=2, curves=past)
    tune.fill()
    tune.step.update({"t0005": 30, "t0006": 10})
    assert tune.report("t0005", 9.0) == TrialScheduler.CONTINUE
    assert tune.report("t0006", 9.0) == TrialScheduler.PAUSE


PRESETS = [config("t0000", preset="paper"), config("t0001", preset="base")]
LITTLE, MUCH = (
    ((0.1, 0.3), (0.5, 0.25)),
    ((0.1, 0.05), (0.5, 0.3)),
)  # at a rung and at the end, of both presets


def after_presets(shown: tuple[tuple[float, float], ...], count: int = 3, presets: Any = PRESETS) -> Tune:
    """A race whose presets have ended, and showed how much a rung says; its trials are about to report."""
    tune = Tune([*presets, *(config(f"t{n:04d}") for n in range(2, 2 + count))], at_once=2 + count)
    tune.fill()
    for preset, errors in zip(presets, shown, strict=True):
        tune.to_the_end(preset["trial"], *errors)
    return tune


def test_a_trial_outside_the_best_third_goes_on_where_rungs_say_little_and_one_without_a_chance_waits() -> (
    None
):
    for shown, said in ((LITTLE, TrialScheduler.CONTINUE), (MUCH, TrialScheduler.PAUSE)):
        tune = after_presets(shown)
        assert [tune.report("t0002", 0.3), tune.report("t0003", 0.31)] == [said, said]
        assert tune.report("t0004", 0.9) == TrialScheduler.PAUSE


def test_a_trial_that_waits_goes_on_when_ends_show_that_its_rung_says_little() -> None:
    tune = Tune([*PRESETS, *of(5)[2:]], at_once=5)  # the last has not come to its rung yet
    tune.fill()
    for name, error in (("t0002", 0.3), ("t0003", 0.31)):
        assert tune.report(name, error) == TrialScheduler.PAUSE
    for name, errors in zip(("t0000", "t0001"), LITTLE, strict=True):
        tune.to_the_end(name, *errors)
    assert tune.order[-2:] == ["t0002", "t0003"] and tune.running == ["t0002", "t0003", "t0004"]


@pytest.mark.parametrize("others", [{"pair": (1, 1)}, {"role": "confirm"}])
def test_ends_on_other_pairs_and_in_the_confirmation_show_nothing(others: dict[str, Any]) -> None:
    tune = after_presets(LITTLE, presets=[{**preset, **others} for preset in PRESETS])
    assert [tune.report(name, 0.3) for name in ("t0002", "t0003")] == [TrialScheduler.PAUSE] * 2


@pytest.mark.parametrize("shown", [LITTLE, MUCH])
def test_after_a_resume_the_same_trials_pass_as_without(shown: tuple[tuple[float, float], ...]) -> None:
    without = after_presets(shown)
    past = [
        Curve(preset["trial"], [(10, rung), (60, end)], PAIR, preset["preset"])
        for preset, (rung, end) in zip(PRESETS, shown, strict=True)
    ]
    resumed = Tune(of(5)[2:], at_once=3, curves=past)
    resumed.fill()
    for name, error in (("t0002", 0.3), ("t0003", 0.31), ("t0004", 0.9)):
        assert resumed.report(name, error) == without.report(name, error)
    assert resumed.running == without.running


def test_the_past_of_presets_on_other_pairs_shows_nothing_after_a_resume() -> None:
    said = []
    for pair in (PAIR, (1, 1)):
        past = [Curve(f"t{n:04d}", [(10, 0.1), (60, 0.3)], pair, "paper") for n in range(2)]
        tune = Tune(of(4)[2:], at_once=2, curves=past)
        tune.fill()
        said.append(tune.report("t0002", 0.11))
    assert said == [TrialScheduler.CONTINUE, TrialScheduler.PAUSE]
