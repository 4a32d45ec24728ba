"""What runs next, and what a driver that died at any moment leaves to run: without Ray."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.store.folder import Store
from cbe.store.recorder import Recorder
from cbe.study.agenda import Agenda
from cbe.study.assignment import Assignment
from cbe.study.budget.guard import BudgetGuard
from cbe.study.engine import _curves
from cbe.study.ledger import Ledger
from cbe.study.lifecycle import delete, journal
from cbe.study.retry import ask_to_retry, retry
from cbe.study.search.mirror import Mirror, open_storage
from cbe.study.search.sampling import Sampling
from tests.study.conftest import rows, study


class Driver:
    """One process's life with a study; leaving it is dying, whatever is unfinished."""

    def __init__(self, config: StudyConfig, where: Path | str, gpus: float = 0) -> None:
        self.folder = Store.open(str(where)).study(config.name)
        self.recorder = Recorder(self.folder).load()
        retry(self.recorder)
        self.mirror = Mirror(None, journal(self.folder), self.folder.uri)
        self.sampling = Sampling(config, self.recorder, mirror=self.mirror)
        self.ledger = Ledger(config, self.recorder, self.sampling, gpus)
        # One trial at a time: the clock says what trials took.
        budget_guard = BudgetGuard(self.ledger, elapsed_s=lambda: self.ledger.trials_s)
        self.agenda = Agenda(config, self.folder, self.ledger, budget_guard)

    def start(self) -> Assignment:
        upcoming = self.agenda.following()
        assert isinstance(upcoming, Assignment)
        self.ledger.started(upcoming)
        return upcoming

    def finish(self, assignment: Assignment, error: float = 0.5) -> None:
        for step in (10, 20, 30, 40):
            self.ledger.reported(assignment, {"step": step, "validation_error": error + 1 / step})
        self.ledger.ended(assignment, {})

    def run(self, trials: int) -> None:
        for _ in range(trials):
            self.finish(self.start())

    def run_to_the_end(self) -> None:
        while isinstance(upcoming := self.agenda.following(), Assignment):
            self.ledger.started(upcoming)
            self.finish(upcoming)
        assert upcoming == "finished"

    def die(self) -> None:
        self.mirror.close()
        self.recorder.close()


def resumed(config: StudyConfig, where: Path, before: int) -> Driver:
    """A study whose first driver died after some trials, and whose second finished it."""
    first = Driver(config, where)
    first.run(before)
    first.die()
    second = Driver(config, where)
    second.run_to_the_end()
    second.die()
    return second


def ran(where: Path, *keys: str) -> Counter[Any]:
    found = rows(Store.open(str(where)).study("small")).values()
    return Counter(tuple(row[key] for key in keys) for row in found)


@pytest.mark.parametrize("before", range(5))
def test_presets_run_once_on_every_pair_whenever_the_driver_died(before: int, tmp_path: Path) -> None:
    config = study(seeds=[0, 1], budget={"trials": 4})
    second = resumed(config, tmp_path, before)
    wanted = {(preset, seed): 1 for preset in ("paper", "base") for seed in (0, 1)}
    assert ran(tmp_path, "preset", "seed") == wanted
    assert all(trial.state.is_finished() for trial in second.sampling.trials().values())


@pytest.mark.parametrize("before", [0, 3, 5, 8])
def test_a_grid_is_run_once_on_every_pair_whenever_the_driver_died(before: int, tmp_path: Path) -> None:
    plain = study(search={"loss.weights.lb": [0.25, 0.5, 2.0]}, sampler="grid", seeds=[0, 1]).to_plain()
    config = StudyConfig.model_validate({**plain, "budget": {}})
    resumed(config, tmp_path, before)
    assert set(ran(tmp_path, "config_id", "seed").values()) == {1}
    assert len(ran(tmp_path, "config_id")) == 5  # three points, the paper's config and the base


def test_impossible_points_of_a_grid_are_recorded_once(tmp_path: Path) -> None:
    plain = study(search={"ensemble.private_channels": [3, 64, 99]}, sampler="grid").to_plain()
    config = StudyConfig.model_validate({**plain, "budget": {}})
    for _ in range(2):
        driver = Driver(config, tmp_path)
        driver.run_to_the_end()
        driver.die()
    assert ran(tmp_path, "state") == {("completed",): 3, ("infeasible",): 2}


def test_what_was_asked_but_not_yet_recorded_never_happened(tmp_path: Path) -> None:
    config = study(budget={"trials": 4})
    first = Driver(config, tmp_path)
    first.run(2)
    first.die()
    asked = first.sampling.ask("t0002", (0, 0))
    second = Driver(config, tmp_path)
    assert "t0002" not in second.sampling.trials()
    upcoming = second.start()
    assert (upcoming.trial, upcoming.point, upcoming.number) == ("t0002", asked.point, asked.number)
    second.run_to_the_end()
    second.die()
    assert ran(tmp_path, "state") == {("completed",): 3, ("running",): 1}


@pytest.mark.parametrize("trace", ["checkpoints/t0002/000000010.pt", "logs/t0002.txt"])
def test_a_name_is_not_given_again_where_a_killed_driver_has_left_more_than_a_row(
    trace: str, tmp_path: Path
) -> None:
    config = study(budget={"trials": 4})
    first = Driver(config, tmp_path)
    first.run(2)
    first.die()
    first.folder.write(trace, b"")
    second = Driver(config, tmp_path)
    assert second.start().trial == "t0003"
    second.die()


def test_a_lowered_budget_takes_back_what_had_only_been_asked_for(tmp_path: Path) -> None:
    six, four = (study(budget={"trials": count}) for count in (6, 4))
    first = Driver(six, tmp_path)
    first.run(2)
    begun, *asked = (first.start() for _ in range(4))
    first.ledger.reported(begun, {"step": 10, "validation_error": 0.5})
    first.die()
    second = Driver(four, tmp_path)
    assert second.sampling.trials().keys() & {each.trial for each in asked} == {asked[0].trial}
    second.run_to_the_end()
    second.die()
    states = {name: row["state"] for name, row in rows(second.folder).items()}
    assert states == {
        **dict.fromkeys(["t0000", "t0001", "t0002", "t0003"], "completed"),
        **dict.fromkeys(["t0004", "t0005"], "interrupted"),
    }
    third = Driver(six, tmp_path)
    third.run_to_the_end()
    third.die()
    assert ran(tmp_path, "state") == {("completed",): 6}


def test_a_race_does_not_wait_for_what_was_taken_back(tmp_path: Path) -> None:
    race = {"scheduler": {"name": "race"}, "seeds": [0, 1]}
    first = Driver(study(budget={"trials": 24}, **race), tmp_path)
    first.run(4)
    for _ in range(6):
        first.start()
    first.die()
    second = Driver(study(budget={"trials": 9}, **race), tmp_path)
    second.run_to_the_end()
    second.die()
    assert ran(tmp_path, "state") == {("completed",): 5, ("interrupted",): 5}  # nobody is ahead of the base


def test_a_row_catches_up_with_its_curve(tmp_path: Path) -> None:
    config = study(budget={"trials": 3})
    first = Driver(config, tmp_path)
    paper = first.start()
    first.recorder.flush()
    for step in (10, 20, 30, 40):  # the driver died between writing the curve and the row
        first.recorder.metrics(paper.trial, {"step": step, "validation_error": 1 / step})
    first.die()
    second = Driver(config, tmp_path)
    upcoming = second.start()
    assert upcoming.trial == paper.trial
    second.ledger.ended(upcoming, {})
    second.die()
    row = rows(second.folder)[paper.trial]
    assert (row["state"], row["step"], row["objective"]) == ("completed", 40, 1 / 40)


def test_what_a_study_had_reported_is_read_once(tmp_path: Path) -> None:
    config = study(budget={"trials": 4})
    first = Driver(config, tmp_path)
    first.run(3)
    begun = first.start()
    first.recorder.metrics(begun.trial, {"step": 10, "validation_error": 0.5})
    first.die()
    second = Driver(config, tmp_path)
    second.folder.delete("metrics")
    upcoming = second.start()
    for step in (10, 20):
        second.ledger.reported(upcoming, {"step": step, "validation_error": 1 / step})
    second.recorder.flush()
    assert (
        upcoming.trial == begun.trial and second.ledger.rows[begun.trial]["median_validation_error"] == 0.275
    )
    curves = {each.trial: dict(each.objective) for each in _curves(second.ledger)}
    assert len(curves) == 4 and curves[begun.trial] == {10: 0.5}
    second.die()


def test_a_study_that_moves_from_machine_to_machine_loses_no_trial_and_leaves_none_running(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = study(budget={"trials": 12}, search={"loss.weights.lb": {"float": [0.1, 3]}}, scheduler="none")
    known: list[str] = []
    for number, machine in enumerate("ABA"):
        (tmp_path / machine).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / machine)
        driver = Driver(config, bucket)
        assert list(driver.sampling.trials()) == known
        driver.run(3 if number else 4)
        driver.start()  # and is killed
        driver.die()
        known = list(driver.sampling.trials())
    last = Driver(config, bucket)
    last.run_to_the_end()
    last.die()
    stored = rows(last.folder)
    assert {row["state"] for row in stored.values()} == {"completed"} and len(stored) == 12
    told = last.sampling.trials()
    assert {name: trial.value for name, trial in told.items()} == {
        name: row["objective"] for name, row in stored.items() if row["params"] != "{}"
    }
    copy = optuna.load_study(study_name="small", storage=open_storage(None, journal(last.folder))).trials
    assert [trial.value for trial in copy] == [trial.value for trial in told.values()]

    monkeypatch.chdir(tmp_path / "B")
    delete(last.folder)
    monkeypatch.chdir(tmp_path / "A")
    new = Driver(config, bucket)
    assert new.sampling.trials() == {} and new.start().trial == "t0000"
    new.die()


def test_failed_trials_are_tried_again_by_name_or_all(tmp_path: Path) -> None:
    config = study(budget={"trials": 6}, scheduler="none")
    first = Driver(config, tmp_path)
    begun = [first.start() for _ in range(6)]
    for each in begun[2:5]:
        first.ledger.reported(each, {"step": 10, "validation_error": 0.5})
        first.ledger.failed(each, f"Error{each.trial}", "it broke")
    for each in (*begun[:2], begun[5]):
        first.finish(each)
    first.die()
    with pytest.raises(InputError, match=r"--retry t0000: small has no .*; failed are t0002, t0003, t0004"):
        ask_to_retry(first.folder, ["t0003", "t0000"])
    for wanted, tried in ((["t0003"], ["t0003"]), (["failed"], ["t0002", "t0004"])):
        ask_to_retry(first.folder, wanted)
        again = Driver(config, tmp_path)
        assert again.sampling.trials()[tried[0]].state == TrialState.RUNNING
        for name in tried:
            upcoming = again.start()
            assert upcoming.trial == name
            again.finish(upcoming)
        assert again.agenda.following() == "finished"
        again.die()
    assert ran(tmp_path, "state", "error_class") == {("completed", None): 6}
    with pytest.raises(InputError, match="no trial has failed; leave it out"):
        ask_to_retry(first.folder, ["failed"])


@pytest.mark.parametrize(("at_once", "needed"), [(1, 3), (7, 3), (8, 4), (40, 18)])
def test_the_same_error_ends_a_study_where_most_of_what_runs_ends_by_it(
    at_once: int, needed: int, tmp_path: Path
) -> None:
    driver = Driver(study(budget={"trials": 200}), tmp_path)
    running = [driver.start() for _ in range(at_once)]
    failures = 0
    while not driver.ledger.broken:
        driver.ledger.failed(running.pop(0), "DataError", "an image cannot be read")
        failures += 1
        if driver.ledger.broken or at_once == 40:
            continue
        running.append(driver.start())
    assert failures == max(needed, at_once // 2) and driver.ledger.stop_reason == "repeated errors"
    assert f"of the last {failures} trials ended with DataError: an image" in driver.ledger.broken
    driver.die()


def test_three_alike_of_hundreds_at_once_end_nothing_and_one_good_trial_is_no_cure(tmp_path: Path) -> None:
    driver = Driver(study(budget={"trials": 200}), tmp_path)
    running = [driver.start() for _ in range(40)]
    for number in range(20):
        if number == 10:
            driver.finish(running.pop())
        else:
            driver.ledger.failed(running.pop(), "DataError", "an image cannot be read")
        assert (driver.ledger.broken is None) == (number < 19)
    driver.die()


def test_a_confirmation_ends_when_its_verdicts_are_known(tmp_path: Path) -> None:
    config = study(search={}, budget={"trials": 2}, confirm={"configs": 0, "runs": 6})
    driver = Driver(config, tmp_path)
    while isinstance(upcoming := driver.agenda.following(), Assignment):
        driver.ledger.started(upcoming)
        driver.finish(upcoming, 0.3 if upcoming.preset == "paper" else 0.5)
    driver.die()
    assert (upcoming, driver.agenda.left) == ("finished", 0)
    assert ran(tmp_path, "role") == {("search",): 2, ("confirm",): 4}  # two pairs, each with the same gap


def test_a_run_that_may_reopen_a_verdict_is_waited_for(tmp_path: Path) -> None:
    config = study(search={}, budget={"trials": 2}, confirm={"configs": 0, "runs": 4})
    driver = Driver(config, tmp_path)
    driver.run(2)
    begun = [driver.start() for _ in range(6)]
    late = next(each for each in begun if each.preset == "paper" and each.pair == (2, 2))
    for each in begun:
        if each != late:
            driver.finish(each, 0.3 if each.preset == "paper" else 0.5)
    assert driver.agenda.left == 0  # the first and the third pair have decided
    assert driver.agenda.following() == "wait"
    driver.finish(late, 0.9)
    assert driver.start().pair == (4, 4)
    driver.die()
