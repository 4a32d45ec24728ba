"""What a study may still spend: by rows that say what trials took, and by real trials on Ray."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cbe.study.assignment import Assignment
from cbe.study.budget.guard import BudgetGuard
from cbe.study.control import ask_to_stop
from cbe.study.progress import Progress
from cbe.study.trial.process import newest
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

    def make(sections: dict[str, Any] | None = None, **budget: Any) -> Driver:
        config = study(**{"resources": A_SECOND, "budget": budget, **(sections or {})})
        made.append(Driver(config, tmp_path, gpus=1))
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
    assert BudgetGuard(first.ledger).refuses(None) is None


def test_where_each_trial_brings_a_machine_the_first_tells_its_pace_before_others_start(
    driver: Callable[..., Driver],
) -> None:
    only = driver(usd=100)
    budget_guard = BudgetGuard(only.ledger, Machines())
    assert budget_guard.refuses(None) is None
    running = only.start()
    assert "has not told its pace" in str(budget_guard.refuses(None))
    assert BudgetGuard(only.ledger).refuses(None) is None  # on a machine that is there anyway
    only.ledger.reported(running, {"step": 10, "validation_error": 0.5})
    assert budget_guard.refuses(None) is None


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
    budget_guard = BudgetGuard(only.ledger)
    took(only, "t0000", wall_s=40.0)
    assert budget_guard.refuses(None) is None  # 40 of 100, and 40 more
    took(only, "t0001", wall_s=30.0)
    assert budget_guard.refuses(None) == (
        "budget.usd of 100 holds no other trial: 30 is left, and one takes up to 40"
    )
    assert budget_guard.reached() is None
    took(only, "t0002", wall_s=30.0)
    assert budget_guard.reached() == "budget.usd of 100 is spent"


def test_what_running_trials_will_still_take_is_set_aside(driver: Callable[..., Driver]) -> None:
    only = driver(usd=100)
    took(only, "t0000", wall_s=40.0)
    took(only, "t0001", state="running", step=10, wall_s=10.0)
    assert "20 is left" in str(BudgetGuard(only.ledger).refuses(None))


def test_a_resumed_trial_is_asked_for_the_rest_of_it(driver: Callable[..., Driver]) -> None:
    only = driver(usd=60)
    going_on = only.start()
    took(only, "t0009", wall_s=40.0)
    assert BudgetGuard(only.ledger).refuses(going_on) is not None
    rest = type(going_on)(**{**vars(going_on), "resume": "checkpoints/t0000/000000030.pt"})
    took(only, going_on.trial, state="interrupted", step=None, wall_s=None)
    assert BudgetGuard(only.ledger).refuses(rest) is None


@pytest.mark.parametrize("cost", ["idle_s", "tail_s", "start_s"])
def test_machines_that_start_or_wait_are_paid_for(cost: str, driver: Callable[..., Driver]) -> None:
    only = driver(usd=100)
    took(only, "t0000", wall_s=40.0)
    assert BudgetGuard(only.ledger, Machines(**{cost: 15.0})).refuses(None) is None
    assert BudgetGuard(only.ledger, Machines(**{cost: 25.0})).refuses(None) is not None


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


# --- what the confirmation needs

CONFIRM = {"confirm": {"configs": 1, "runs": 2}}  # six runs
WALL_S = 20.0  # of every trial


def run_to_the_end(driver: Driver) -> Counter[str]:
    """Trials of 20 seconds, whose verdicts stay open; the runs of each role."""
    while isinstance(upcoming := driver.agenda.following(), Assignment):
        driver.ledger.started(upcoming)
        error = {"base": 0.5, "paper": 0.6}.get(str(upcoming.preset), 0.4 + 0.3 * (upcoming.pair[0] % 2))
        driver.ledger.reported(upcoming, {"step": 40, "validation_error": error})
        driver.ledger.ended(upcoming, {})
        driver.recorder.trial(upcoming.trial, wall_s=WALL_S)
    assert upcoming == "finished"
    return Counter(row["role"] for row in driver.ledger.rows.values())


@pytest.mark.parametrize(("limit", "of"), [("usd", 1), ("gpu_hours", 3600), ("wall_hours", 3600)])
def test_the_search_ends_where_the_confirmation_needs_the_rest(
    limit: str, of: float, driver: Callable[..., Driver]
) -> None:
    only = driver(CONFIRM, trials=30, **{limit: 410 / of})
    assert run_to_the_end(only) == {"search": 14, "confirm": 6}  # 280 seconds of 410, and 120
    assert only.ledger.stop_reason is None
    assert only.agenda.cut_short == (
        f"budget.{limit} of {410 / of:g} keeps {120 / of:.3g} for the confirmation"
    )


def test_a_budget_that_is_large_enough_cuts_nothing_short(driver: Callable[..., Driver]) -> None:
    only = driver(CONFIRM, trials=14, usd=410)
    assert run_to_the_end(only) == {"search": 14, "confirm": 6}
    assert only.agenda.cut_short is None


def test_the_confirmation_is_kept_at_most_half_of_a_limit(driver: Callable[..., Driver]) -> None:
    only = driver(CONFIRM, trials=30, usd=170)
    assert run_to_the_end(only) == {"search": 4, "confirm": 4}  # 120 would be needed, and 85 are kept
    assert "holds no other trial" in str(only.ledger.stop_reason)


def test_the_papers_config_and_the_base_run_whatever_is_kept(driver: Callable[..., Driver]) -> None:
    only = driver(CONFIRM, trials=30, usd=70)
    assert run_to_the_end(only) == {"search": 2, "confirm": 1}


def test_nothing_is_kept_where_nothing_is_confirmed(driver: Callable[..., Driver]) -> None:
    only = driver(trials=30, usd=410)
    assert run_to_the_end(only) == {"search": 20}


def test_a_search_that_was_cut_short_goes_on_with_a_larger_budget(driver: Callable[..., Driver]) -> None:
    first = driver(CONFIRM, trials=30, usd=410)
    run_to_the_end(first)
    first.die()
    more = driver(CONFIRM, trials=30, usd=510)
    assert run_to_the_end(more)["search"] == 19  # a hundred more, and nothing else to confirm
    assert more.ledger.stop_reason is None or "holds no other trial" in more.ledger.stop_reason


def test_places_that_work_at_once_need_less_time_by_the_clock(driver: Callable[..., Driver]) -> None:
    only = driver(CONFIRM, wall_hours=200 / 3600)
    took(only, "t0000", wall_s=WALL_S)

    def keeps(concurrent: int, elapsed_s: float) -> str | None:
        return BudgetGuard(only.ledger, elapsed_s=lambda: elapsed_s, concurrent=concurrent).keeps(6)

    assert keeps(1, 70) is None and keeps(1, 90) is not None  # 100 of 200 are kept: half
    assert keeps(3, 130) is None and keeps(3, 150) is not None  # twice 20


def test_of_paused_trials_a_budget_counts_those_that_will_go_on(driver: Callable[..., Driver]) -> None:
    race = {"scheduler": {"name": "race", "reduction": 4}, "training": {"steps": 40, "eval_every": 10}}
    only = driver(race, trials=30, usd=100)
    paused = [only.start() for _ in range(4)]
    for each in paused:
        only.ledger.paused(each.trial)
        took(only, each.trial, state="running", step=10, wall_s=10.0)
    assert BudgetGuard(only.ledger).refuses(None) == (  # 40 are spent, and one of four goes on for 30 more
        "budget.usd of 100 holds no other trial: 30 is left, and one takes up to 40"
    )


def test_a_study_does_not_halt_for_its_budget_while_paused_trials_may_be_dropped(
    driver: Callable[..., Driver],
) -> None:
    only = driver({"scheduler": {"name": "race", "reduction": 2}, "training": {"eval_every": 10}}, usd=100)
    done, paused = only.start(), only.start()
    only.ledger.ended(done, {})
    took(only, done.trial, wall_s=40.0)
    only.ledger.paused(paused.trial)
    took(only, paused.trial, state="running", step=10, wall_s=10.0)
    assert only.agenda.following() == "wait"
    assert only.ledger.stop_reason is None
    took(only, paused.trial, state="pruned", step=10, wall_s=10.0)
    assert isinstance(only.agenda.following(), Assignment)


# --- on Ray


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
        assert newest(folder, name, row["step"] or 0, 200) == f"checkpoints/{name}/1/{step:09d}.pt"

    def stop(progress: Progress, over: threading.Event) -> None:
        def went_on(trial: str) -> bool:
            return bool((progress.ledger.rows[trial]["step"] or 0) > (found[trial]["step"] or 0))

        until(lambda: all(went_on(trial) for trial in found), 240, what="reports")
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


@pytest.mark.usefixtures("cluster")
def test_a_study_on_a_small_budget_comes_to_its_confirmation(tmp_path: Path) -> None:
    short = {"steps": 20, "eval_every": 10, "lr": 0.03}
    given = {"scheduler": "none", "resources": A_SECOND, "budget": {"trials": 500, "usd": 30}}
    progress, folder = run(study(training=short, **given, **CONFIRM), tmp_path)
    found = rows(folder).values()
    assert str(progress.agenda.cut_short).startswith("budget.usd of 30 keeps ")
    assert {"paper", "base"} <= {row["preset"] for row in found if row["role"] == "confirm"}
    assert sum(row["cost_usd"] for row in found) <= 30
