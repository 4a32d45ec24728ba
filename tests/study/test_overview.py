"""How studies stand, out of their tables and their drivers' last words, and the same again out of JSON."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cbe.errors import InputError
from cbe.processes import born
from cbe.service.live.study_status import StudyStatus, StudyStatusDetails
from cbe.service.trials import trial
from cbe.store.folder import Store
from cbe.study.overview import Details, Overview, Spent, StageProgress, details, followed, overview, overviews
from tests.made import Made, finished, status

ALIVE: dict[str, Any] = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
GONE = ALIVE | {"pid": 2**22 + 1}
SAID: dict[str, Any] = {"elapsed_s": 62.5, "eta_s": [30.0, 90.5], "steps_per_s": 12.25, "problem": None}


def running(store: Path, who: dict[str, Any] = ALIVE, **said: Any) -> Made:
    """A study in the middle of its search, with a trial of every kind."""
    made = Made(store, resources={"usd_per_hour": 3.6})
    made.trial(0.5, preset="base", gpu_s=1800.0, cost_usd=0.25)
    made.trial(0.25, {"ensemble.heads": 4, "loss.weights.lb": 0.1}, cost_usd=1.5, gpu_s=None)
    made.trial(float("nan"), {"ensemble.heads": 2, "loss.weights.lb": 1e-7}, state="pruned")
    made.trial(None, {"ensemble.heads": 8}, state="failed", error_class="Größer", error_text="a\nb")
    made.trial(None, {"ensemble.heads": 8}, state="infeasible", config=None, steps=0, wall_s=None)
    made.trial(0.4, {"ensemble.heads": 3, "loss.weights.lb": 1.0}, state="running", steps=100)
    status(made, "running", **who, **SAID | said)
    return made


def in_store(made: Made) -> Store:
    return Store.open(str(Path(made.folder.uri).parent))


def through_json(plain: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(plain, allow_nan=False))
    return found


def test_a_trial_that_waits_at_a_rung_is_paused_as_long_as_its_driver_lives(tmp_path: Path) -> None:
    made = running(tmp_path, paused=["t0001", "t0005"])  # the first has ended since
    waits = made.trial(0.4, {"ensemble.heads": 3, "loss.weights.lb": 2.0}, state="running", steps=100)
    for who, states in ((ALIVE, ("paused", "running")), (GONE, ("interrupted", "interrupted"))):
        status(made, "running", **who, paused=["t0001", "t0005"])
        found = details(in_store(made), "made")
        told = {row["trial"]: row["state"] for row in found.trials}
        assert (told["t0005"], told[waits]) == states and told["t0001"] == "completed"
        assert found.overview.counts.get("paused", 0) == (who is ALIVE)
        assert trial(in_store(made), "made", "t0005").row["state"] == states[0]


def test_a_running_study_tells_what_its_driver_said_and_what_its_trials_took(tmp_path: Path) -> None:
    made = running(tmp_path, problem="disk full")
    found = overview(in_store(made), "made")
    assert (found.state, found.elapsed_s, found.steps_per_s) == ("running", 62.5, 12.25)
    assert (found.eta_s, found.problem) == ((30.0, 90.5), "disk full")
    wall_s = sum(row["wall_s"] or 0 for row in made.folder.table("trials").to_pylist())
    assert found.spent == Spent(pytest.approx(wall_s / 3600), 0.5, 1.75)
    assert found.best_trial == "t0001" and found.counts["infeasible"] == 1


def test_what_machines_cost_beside_their_trials_is_spent_too(tmp_path: Path) -> None:
    made = running(tmp_path, idle={"gpu_hours": 0.25, "usd": 2.0})
    found = overview(in_store(made), "made").spent
    assert (found.gpu_hours, found.usd) == (0.75, 3.75)


def test_a_finished_study_tells_what_its_verdict_did_not_need(tmp_path: Path) -> None:
    budget = {"trials": 30, "usd": 10, "wall_hours": 0.5}
    made = finished(tmp_path, budget=budget, resources={"usd_per_hour": 3.6}, confirm={"runs": 5})
    status(made, "finished", cut_short="budget.usd of 10 keeps 2 for the confirmation")
    made.trial(0.2, preset="base", role="confirm", pair=(4, 4), cost_usd=7.5)
    found = overview(in_store(made), "made")
    assert found.cut_short == "budget.usd of 10 keeps 2 for the confirmation"
    runs = made.study.confirm_runs - 10  # three pairs of three configs, and one more of the base
    assert found.unspent == pytest.approx({"wall_hours": 0.5 - 240 / 3600, "usd": 2.5, "confirm_runs": runs})
    assert runs > 0


def test_a_study_that_goes_on_has_nothing_unspent(tmp_path: Path) -> None:
    found = overview(in_store(running(tmp_path)), "made")
    assert found.unspent is None and found.cut_short is None


def test_a_driver_that_is_gone_promises_no_time_but_its_problem_stands(tmp_path: Path) -> None:
    found = overview(in_store(running(tmp_path, GONE, problem="disk full")), "made")
    assert found.state == "interrupted" and found.eta_s is None
    assert (found.elapsed_s, found.problem) == (62.5, "disk full")
    assert found.counts["interrupted"] == 1 and "running" not in found.counts


def test_a_study_that_nobody_has_driven_has_taken_nothing(tmp_path: Path) -> None:
    found = overview(in_store(Made(tmp_path)), "made")
    assert (found.state, found.elapsed_s, found.eta_s, found.problem) == ("new", None, None, None)
    assert found.spent == Spent(0.0, 0.0, 0.0)


def test_the_stage_is_what_a_living_driver_says(tmp_path: Path) -> None:
    """Of a grid fewer trials may be run than were counted on."""
    store = in_store(running(tmp_path, stage="confirm"))
    assert overview(store, "made").stage == "confirm"
    status(Made(tmp_path), "running", **GONE, stage="confirm")
    assert overview(store, "made").stage == "search"


def test_one_overview_is_of_a_study_that_is_there_even_if_it_cannot_be_read(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    with pytest.raises(InputError, match="holds no study made"):
        overview(store, "made")
    store.study("made").write("study.yaml", b"name: made\nmodel: vit\n")
    found = overview(store, "made")
    assert found.state == "unreadable" and "wrn-DEPTH-WIDTH" in str(found.reason)
    assert list(overviews(store)) == [found]
    assert Overview.from_plain(through_json(found.to_plain())) == found


@pytest.mark.parametrize("make", [finished, running, Made])
def test_a_study_comes_out_of_json_as_it_went_in(tmp_path: Path, make: Any) -> None:
    found = details(in_store(make(tmp_path)), "made")
    plain = through_json(found.to_plain())
    assert Details.from_plain(plain) == found
    assert Overview.from_plain(plain) == found.overview
    assert plain.keys() == {*(field.name for field in fields(Overview)), "under_way", "optuna", "trials"}
    for row, told in zip(found.trials, plain["trials"], strict=True):
        assert isinstance(row["params"], str) and isinstance(told["params"], dict)
        assert told["params"] == json.loads(row["params"])


def test_what_is_no_number_is_none_in_json_and_before(tmp_path: Path) -> None:
    found = details(in_store(running(tmp_path)), "made")
    stopped = next(row for row in found.trials if row["state"] == "pruned")
    assert stopped["objective"] is None


def test_a_standing_is_flat_in_json_and_comes_out_as_it_went_in(tmp_path: Path) -> None:
    found = details(in_store(running(tmp_path)), "made")
    seen = replace(found.overview, state="queued", reason="2 are before it")
    at = datetime(2026, 5, 4, 12, 30, 1, 5, tzinfo=timezone(timedelta(hours=2)))
    study_status = StudyStatus(seen, "ada", -3, at, 2)
    plain = through_json(study_status.to_plain())
    assert plain["study"] == "made" and plain["state"] == "queued" and plain["owner"] == "ada"
    assert (plain["priority"], plain["queue_position"], plain["submitted"]) == (
        -3,
        2,
        "2026-05-04T12:30:01.000005+02:00",
    )
    assert StudyStatus.from_plain(plain) == study_status
    whole = StudyStatusDetails(seen, found.trials, found.optuna, study_status)
    assert StudyStatusDetails.from_plain(through_json(whole.to_plain())) == whole


def test_the_latest_that_was_heard_of_a_study_is_its_submission_or_a_trial(tmp_path: Path) -> None:
    found = overview(in_store(running(tmp_path)), "made")
    assert found.updated is not None and StudyStatus(found).latest == found.updated
    later = found.updated + timedelta(seconds=1)
    assert StudyStatus(found, submitted=later).latest == later
    assert StudyStatus(replace(found, updated=None)).latest < datetime(2000, 1, 1, tzinfo=UTC)


numbers = some.floats(allow_nan=False, allow_infinity=False)
texts = some.text(some.characters(codec="utf-8"))
maybe = some.none()
made_up = some.builds(
    Overview,
    study=texts,
    question=texts,
    state=some.sampled_from(["new", "queued", "running", "failed"]),
    reason=maybe | texts,
    stage=maybe | some.sampled_from(["search", "confirm"]),
    search=maybe | some.builds(StageProgress, some.integers(), some.integers()),
    confirm=maybe | some.builds(StageProgress, some.integers(), some.integers()),
    counts=some.dictionaries(texts, some.integers(0, 10**6)),
    metric=maybe | texts,
    best=maybe | numbers,
    best_trial=maybe | texts,
    updated=maybe | some.datetimes(timezones=some.just(UTC)),
    elapsed_s=maybe | numbers,
    eta_s=maybe | some.tuples(numbers, numbers),
    steps_per_s=maybe | numbers,
    problem=maybe | texts,
    outage=maybe | texts,
    spent=some.builds(Spent, numbers, numbers, numbers),
    cut_short=maybe | texts,
    unspent=maybe | some.dictionaries(texts, numbers),
)


@given(
    some.builds(
        StudyStatus,
        made_up,
        owner=maybe | texts,
        priority=some.integers(-100, 100),
        submitted=maybe | some.datetimes(timezones=some.just(UTC)),
        queue_position=maybe | some.integers(1, 100),
    )
)
def test_whatever_a_standing_holds_comes_out_of_json_as_it_went_in(study_status: StudyStatus) -> None:
    assert StudyStatus.from_plain(through_json(study_status.to_plain())) == study_status


def test_a_study_is_followed_for_as_long_as_it_goes_on(tmp_path: Path) -> None:
    made = running(tmp_path)
    store = in_store(made)

    def seen() -> Iterator[str]:
        for found in followed(lambda: details(store, "made"), every_s=0.01):
            yield found.overview.state
            if found.overview.state == "running":
                status(made, "stopped", stop_reason="it was asked to stop")

    assert list(seen()) == ["running", "stopped"]
