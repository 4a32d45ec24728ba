"""What a study may still spend: by rows that say what trials took, and by real trials on Ray."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cbe.study.budget import Purse
from cbe.study.control import ask_to_stop
from cbe.study.progress import Progress
from cbe.study.trial import newest
from tests.study.conftest import curve, meanwhile, rows, run, study
from tests.study.test_agenda import Driver
from tests.waiting import until

A_SECOND = {"usd_per_hour": 3600}  # costs a dollar


@dataclass
class Machines:
    idle_s: float = 0.0
    tail_s: float = 0.0
    start_s: float = 0.0


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def make(**budget: Any) -> Driver:
        made.append(Driver(study(resources=A_SECOND, budget=budget), tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.die()


def took(driver: Driver, trial: str, **row: Any) -> None:
    """Writes down a trial of forty steps."""
    driver.recorder.trial(trial, **{"role": "search", "state": "completed", "step": 40, "steps": 40, **row})


def test_nothing_is_refused_before_a_trial_has_told_how_long_it_takes(driver: Callable[..., Driver]) -> None:
    first = driver(usd=0.01)
    took(first, "t0000", state="running", step=None, wall_s=None)
    assert Purse(first.ledger).refuses(None) is None


def test_where_each_trial_brings_a_machine_the_first_tells_its_pace_before_others_start(
    driver: Callable[..., Driver],
) -> None:
    only = driver(usd=100)
    purse = Purse(only.ledger, Machines())
    assert purse.refuses(None) is None
    running = only.start()
    assert "has not told its pace" in str(purse.refuses(None))
    assert Purse(only.ledger).refuses(None) is None  # on a machine that is there anyway
    only.ledger.reported(running, {"step": 10, "validation_error": 0.5})
    assert purse.refuses(None) is None


def test_a_killed_drivers_trials_are_not_counted_twice_when_they_go_on(driver: Callable[..., Driver]) -> None:
    killed = driver(usd=100)
    done, running = killed.start(), killed.start()
    took(killed, done.trial, wall_s=40.0)
    took(killed, running.trial, state="running", step=20, wall_s=20.0)
    killed.die()
    again = driver(usd=100)
    assert {row["state"] for row in again.ledger.rows.values()} == {"completed", "interrupted"}
    assert not again.ledger.waiting
    # 60 of 100 are spent, and all forty of its steps would fit once, but not twice.
    assert again.agenda.following() == running


def test_a_trial_starts_only_where_all_of_it_fits_into_what_is_left(driver: Callable[..., Driver]) -> None:
    only = driver(usd=100)
    purse = Purse(only.ledger)
    took(only, "t0000", wall_s=40.0)
    assert purse.refuses(None) is None  # 40 of 100, and 40 more
    took(only, "t0001", wall_s=30.0)
    assert purse.refuses(None) == (
        "budget.usd of 100 holds no other trial: 30 is left, and one takes up to 40"
    )
    assert purse.reached() is None
    took(only, "t0002", wall_s=30.0)
    assert purse.reached() == "budget.usd of 100 is spent"


def test_what_running_trials_will_still_take_is_set_aside(driver: Callable[..., Driver]) -> None:
    only = driver(usd=100)
    took(only, "t0000", wall_s=40.0)
    took(only, "t0001", state="running", step=10, wall_s=10.0)
    assert "20 is left" in str(Purse(only.ledger).refuses(None))


def test_a_resumed_trial_is_asked_for_the_rest_of_it(driver: Callable[..., Driver]) -> None:
    only = driver(usd=60)
    going_on = only.start()
    took(only, "t0009", wall_s=40.0)
    assert Purse(only.ledger).refuses(going_on) is not None
    rest = type(going_on)(**{**vars(going_on), "resume": "checkpoints/t0000/000000030.pt"})
    took(only, going_on.trial, state="interrupted", step=None, wall_s=None)
    assert Purse(only.ledger).refuses(rest) is None


@pytest.mark.parametrize("cost", ["idle_s", "tail_s", "start_s"])
def test_machines_that_start_or_wait_are_paid_for(cost: str, driver: Callable[..., Driver]) -> None:
    only = driver(usd=100)
    took(only, "t0000", wall_s=40.0)
    assert Purse(only.ledger, Machines(**{cost: 15.0})).refuses(None) is None
    assert Purse(only.ledger, Machines(**{cost: 25.0})).refuses(None) is not None


def test_the_agenda_waits_for_what_runs_and_then_halts(driver: Callable[..., Driver]) -> None:
    only = driver(usd=100)
    running = only.start()
    took(only, "t0009", wall_s=40.0)
    took(only, running.trial, wall_s=35.0, step=35, state="running")
    assert only.agenda.following() == "wait"
    only.ledger.reported(running, {"step": 40, "validation_error": 0.5})
    only.ledger.ended(running, {})
    assert only.agenda.following() == "finished"
    assert "holds no other trial" in str(only.ledger.stop_reason)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "usd", [20, pytest.param(90, marks=pytest.mark.chaos)], ids=["", "within two per cent"]
)
def test_a_study_that_needs_more_stops_at_its_budget_keeps_all_and_goes_on_with_more(
    usd: float, tmp_path: Path
) -> None:
    # Long enough that both trials are well past the start of their process, which nothing can cut short; and
    # few small evaluations, which nothing can cut short either.
    given = {
        "data": {"validation": 50},
        "training": {"steps": 400_000, "eval_every": 200},
        **{"scheduler": "none", "resources": {**A_SECOND, "concurrent": 2}},
    }
    progress, folder = run(study(**given, budget={"trials": 2, "usd": usd}), tmp_path)
    assert progress.stop_reason == f"budget.usd of {usd} is spent"
    found = rows(folder)
    assert sum(row["cost_usd"] for row in found.values()) == pytest.approx(usd, abs=1.8)
    assert [row["state"] for row in found.values()] == ["interrupted"] * 2
    stopped = {row["trial"]: row for row in folder.table("events").to_pylist() if row["kind"] == "paused"}
    for name, row in found.items():  # a checkpoint each, of the very step it was stopped at
        step = json.loads(stopped[name]["details"])["step"]
        assert newest(folder, name, row["step"] or 0, 200) == f"checkpoints/{name}/{step:09d}.pt"

    def stop(progress: Progress, over: threading.Event) -> None:
        def went_on(trial: str) -> bool:
            return bool((progress.ledger.rows[trial]["step"] or 0) > (found[trial]["step"] or 0))

        until(lambda: all(went_on(trial) for trial in found), what="reports")
        ask_to_stop(folder)

    more = study(**given, budget={"trials": 2, "usd": 90_000})
    progress, folder = run(more, tmp_path, watch=meanwhile(stop))
    assert progress.stop_reason == "it was asked to stop"
    for name, row in rows(folder).items():
        assert row["cost_usd"] > found[name]["cost_usd"]
        assert [step for step, *_ in curve(folder, name)] == list(range(200, row["step"] + 1, 200))


@pytest.mark.usefixtures("cluster")
def test_no_trial_starts_that_does_not_fit_into_what_is_left(tmp_path: Path) -> None:
    short = {"steps": 20, "eval_every": 10, "lr": 0.03}
    config = study(training=short, scheduler="none", resources=A_SECOND, budget={"trials": 500, "usd": 20})
    progress, folder = run(config, tmp_path)
    costs = [row["cost_usd"] for row in rows(folder).values()]
    assert "holds no other trial" in str(progress.stop_reason)
    assert {row["state"] for row in rows(folder).values()} == {"completed"}
    assert 20 - 1.1 * max(costs) <= sum(costs) <= 20
