"""The scheduler race: trials pause at rungs, the best go on, and no study waits for those that cannot."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from cbe.spec.settings import Scheduler
from cbe.ssl.world import World
from cbe.store.folder import Store, StudyFolder
from cbe.study.assignment import Assignment
from cbe.study.search.scheduling import Curve, scheduler
from cbe.study.trial.process import Shared
from cbe.training.launch import Send
from tests.study.conftest import curve, rows, run, study

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


class Tune:
    """Tune's controller without Ray, which does what the scheduler says, in the order that Tune does."""

    def __init__(
        self,
        configs: Iterable[dict[str, Any]],
        at_once: int = 1,
        waits: bool = True,
        curves: Any = (),
        **sections: Any,
    ) -> None:
        self.scheduler = cast(Any, scheduler(study(**{**RACE, **sections}), curves))
        self.limiter = ConcurrencyLimiter(Agenda(configs, waits), at_once)
        self.finished = False
        self.search_alg = SimpleNamespace(searcher=self.limiter, is_finished=lambda: self.finished)
        self.trials: dict[str, Trial] = {}
        self.step: Counter[str] = Counter()
        self.order: list[str] = []  # in which trials began and went on

    def get_live_trials(self) -> list[Trial]:
        return [trial for trial in self.trials.values() if not trial.is_finished()]

    get_trials = get_live_trials

    def stop_trial(self, trial: Trial) -> None:
        assert trial.status == Trial.PAUSED
        self.scheduler.on_trial_remove(self, trial)
        self._end(trial)

    def fill(self) -> None:
        """As much of Tune's step as comes before it waits for reports."""
        for _ in range(20):
            self._ask()
            chosen = self.scheduler.choose_trial_to_run(self)
            if chosen is not None and chosen.status == Trial.PAUSED:
                self._begin(chosen)
            for trial in self.get_live_trials():
                if trial.status == Trial.PENDING:
                    self._begin(trial)

    def report(self, name: str, error: float, **others: Any) -> str:
        trial = self.trials[name]
        assert trial.status == Trial.RUNNING, trial.status
        self.step[name] += 10
        result = {"step": self.step[name], "validation_error": error, **others}
        said = str(self.scheduler.on_trial_result(self, trial, result))
        if said == TrialScheduler.PAUSE:
            trial.set_status(Trial.PAUSED)
        elif self.step[name] == 60 or "error_class" in result:
            self.scheduler.on_trial_complete(self, trial, result)
            self._end(trial)
        self.fill()
        return said

    def play(self, error: Callable[[str], float]) -> None:
        """Lets all trials report in turns until nothing runs."""
        self.fill()
        while running := self.running:
            for name in running:
                self.report(name, error(name))

    @property
    def running(self) -> list[str]:
        return [name for name, trial in self.trials.items() if trial.status == Trial.RUNNING]

    @property
    def ended_at(self) -> dict[str, int]:
        return {name: self.step[name] for name, trial in self.trials.items() if trial.is_finished()}

    def _ask(self) -> None:
        while not self.finished:
            identity = f"{len(self.trials):08d}"
            given = cast(Any, self.limiter.suggest(identity))
            self.finished = given == Searcher.FINISHED
            if given is None or self.finished:
                return
            trial = Trial("_", config=given, trial_id=identity, stub=True)
            self.trials[given["trial"]] = trial
            self.scheduler.on_trial_add(self, trial)

    def _begin(self, trial: Trial) -> None:
        trial.set_status(Trial.RUNNING)
        self.order.append(trial.config["trial"])
        assert len(self.running) <= self.limiter.max_concurrent

    def _end(self, trial: Trial) -> None:
        trial.set_status(Trial.TERMINATED)
        self.limiter.on_trial_complete(trial.trial_id)


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
    assert len(tune.ended_at) == 9 and not tune.limiter.live_trials


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
    assert tune.finished and [tune.trials[name].status for name in ("t0000", "t0001")] == [Trial.PAUSED] * 2
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
    tune.scheduler.on_trial_error(tune, trial)
    tune.scheduler.on_trial_add(tune, trial)
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


@pytest.mark.parametrize("rungs", [[], [0], [0.5, 1], [0.5, 0.2], [0.2, 0.2], [math.nan]])
def test_rungs_that_make_no_sense_are_refused(rungs: list[float]) -> None:
    with pytest.raises(ValidationError, match="rungs are shares of the steps, above 0, below 1 and rising"):
        Scheduler.model_validate({"name": "race", "rungs": rungs})


def test_rungs_are_for_a_race_and_come_before_the_last_evaluation() -> None:
    with pytest.raises(ValidationError, match="rungs are for the scheduler race, not for asha"):
        Scheduler(name="asha", rungs=(0.5,))
    for interval, steps in ((10, (30, 40)), (25, (50,)), (60, ())):
        training = study(training={"steps": 60, "eval_every": interval}).training
        assert Scheduler(name="race").rung_steps(training) == steps
    assert Scheduler(name="race", rungs=(0.07,)).rung_steps(study(training={"steps": 100}).training) == (10,)


def resumable() -> Any:
    """A body that goes on from its checkpoint's step; the earlier a trial began, the lower its error."""

    # In here, so that it is sent by value: a trial's process cannot import this file with its conftest.
    def body(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
        folder, training = Store.open(shared.store).study(shared.study.name), shared.study.training
        content = folder.read(resume) if resume else None
        begin, interval = json.loads(content)["step"] if content else 0, training.evaluation_interval
        loss = int(assignment.trial[1:]) / 10 if assignment.point else 9.0
        for step in range(begin + interval, training.steps + 1, interval):
            kept = f"checkpoints/{assignment.trial}/{shared.epoch}/{step:09d}.pt"
            folder.write(kept, json.dumps({"step": step}).encode())
            figures = {"validation_error": loss / 10, "validation_loss": loss, "trial_s": 0.1, "loss": begin}
            send({"step": step, **figures, "checkpoint": kept}, kept)

    return body


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_race_ends_with_promoted_trials_that_went_on_from_their_checkpoints(
    tmp_path: Path, at_once: int
) -> None:
    config = study(
        **RACE,
        search={"loss.weights.lb": {"float": [0.1, 3]}},
        sampler="random",
        budget={"trials": 9},
        confirm={"configs": 1, "runs": 1},
        resources={"concurrent": at_once},
    )
    progress, folder = run(config, tmp_path, body=resumable())
    assert progress.stop_reason is None
    found = rows(folder)
    search = {name: row for name, row in found.items() if row["role"] == "search"}
    assert len(search) == 9 and len(found) > 9
    for name, row in found.items():
        assert [step for step, *_ in curve(folder, name)] == list(range(10, row["step"] + 1, 10)), name
        assert row["state"] == ("completed" if row["step"] == 60 else "pruned")
        if row["preset"] or row["role"] == "confirm":
            assert row["state"] == "completed"
    pruned = [row for row in search.values() if row["state"] == "pruned"]
    assert len(pruned) >= 3 and {row["step"] for row in pruned} <= {10, 20}
    sampled = [row for row in search.values() if not row["preset"]]
    best = min(sampled, key=lambda row: row["objective"])
    assert best["state"] == "completed"
    waited = waited_at_rungs(folder, [row["trial"] for row in sampled])
    begun = {name: {begin for _, begin in curve(folder, name, "loss")} for name in found}
    for name, row in found.items():
        assert begun[name] == {0, *(rung for rung in waited.get(name, ()) if rung < row["step"])}, name
    # Only the two best can be the first to report, and then one of them waits and goes on.
    assert begun["t0002"] | begun["t0003"] > {0}


def waited_at_rungs(folder: StudyFolder, names: Sequence[str]) -> dict[str, set[int]]:
    """The rungs at which a trial was not among the best third of those that had reported there by then.

    How many there are depends on the order of reports: a trial may be among the best at its report.
    """
    table = folder.table("metrics", ["trial", "step", "time", "validation_error"])
    reports = table.sort_by("time").to_pylist()
    waited: dict[str, set[int]] = {name: set() for name in names}
    for rung in (10, 20):
        so_far: list[tuple[float, str]] = []
        for report in reports:
            if report["step"] == rung and report["trial"] in waited:
                so_far.append((report["validation_error"], report["trial"]))
                if so_far[-1] not in sorted(so_far)[: len(so_far) // 3]:
                    waited[report["trial"]].add(rung)
    return waited
