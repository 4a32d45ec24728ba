"""Whose study starts next, and what becomes of one whose driver has ended: pure functions."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbe.service.queue.entry import LOSSES, Entry, settled, state_of
from cbe.service.queue.fair_queue import Begun, Waiting, in_turn
from cbe.service.queue.ray_jobs import Job
from cbe.service.queue.submissions import Submission
from cbe.store.states import Status

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def waits(study: str, owner: str, minute: int = 0, priority: int = 0) -> Waiting:
    return Waiting(study, owner, NOON + timedelta(minutes=minute), priority)


def names(order: list[Waiting]) -> list[str]:
    return [each.study for each in order]


def test_users_take_turns_however_many_studies_one_of_them_submits() -> None:
    many = [waits(f"ada{n}", "ada", n) for n in range(4)]
    assert names(in_turn([*many, waits("ben0", "ben", 9)], [])) == ["ada0", "ben0", "ada1", "ada2", "ada3"]


def test_a_higher_priority_goes_first_and_a_user_with_a_running_study_waits_for_those_without() -> None:
    order = in_turn(
        [waits("a", "ada"), waits("b", "ben", 1), waits("urgent", "ada", 2, priority=5)],
        [Begun("ada", NOON, running=True)],
    )
    assert names(order) == ["urgent", "b", "a"]


def test_among_equals_it_is_the_turn_of_whoever_has_waited_longest() -> None:
    begun = [Begun("ada", NOON, running=False), Begun("ben", NOON - timedelta(hours=1), running=False)]
    assert names(in_turn([waits("a", "ada"), waits("b", "ben", 1)], begun)) == ["b", "a"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 100), st.integers(-1, 1)), min_size=1, max_size=12
    )
)
def test_nobody_is_left_out_or_passed_over_twice_running(given: list[tuple[str, int, int]]) -> None:
    waiting = [waits(f"s{n}", owner, minute, priority) for n, (owner, minute, priority) in enumerate(given)]
    order = in_turn(waiting, [])
    assert Counter(order) == Counter(waiting)
    assert [each.priority for each in order] == sorted((each.priority for each in order), reverse=True)
    for place, each in enumerate(order):
        ahead = Counter(other.owner for other in order[:place])
        same = [other for other in order[place:] if other.priority == each.priority]
        assert all(ahead[each.owner] <= ahead[other.owner] for other in same)


RUNNING = Submission("ada", NOON, started=NOON, beat=1.0)


def entry(
    said: dict[str, Any],
    job: str | None = "failed",
    exit_code: int | None = 1,
    *,
    stop: bool = False,
    **known: Any,
) -> Entry:
    """A study whose driver said this last, and whose job Ray saw end so."""
    found = Job("s@1", "s", job, known.pop("message", ""), exit_code, NOON, NOON) if job else None
    last = Status({"host": "elsewhere", "beat": 2.0, **said})
    return Entry("s", replace(RUNNING, **known), last, found, stop)


def test_a_study_that_is_done_rests_and_is_told_so() -> None:
    submission, event = settled(entry({"state": "finished"}, "succeeded", 0))
    assert (submission.wanted, submission.failed, submission.unsent) == ("rest", None, "finished")
    assert event == "finished"


def test_a_driver_that_finds_nothing_to_do_says_no_word_and_the_study_is_finished() -> None:
    submission, event = settled(entry({"state": "finished", "beat": 1.0}, "succeeded", 0))
    assert (submission.wanted, submission.failed, event) == ("rest", None, "finished")


@pytest.mark.parametrize(
    ("stop_reason", "unsent"), [("budget.trials of 4 is spent", "budget"), ("it was asked to stop", None)]
)
def test_a_spent_budget_is_told_and_a_stop_is_no_failure(stop_reason: str, unsent: str | None) -> None:
    submission, event = settled(entry({"state": "stopped", "stop_reason": stop_reason}, "failed", 3))
    assert (submission.wanted, submission.failed, submission.unsent) == ("rest", None, unsent)
    assert event == unsent or event == "stopped"


def test_a_study_that_breaks_off_has_failed_for_the_reason_it_gives() -> None:
    said = {"state": "stopped", "stop_reason": "repeated errors", "broken": "3 trials ended with DataError"}
    submission, event = settled(entry(said, "failed", 1))
    assert (event, submission.unsent, submission.failed) == ("failed", "failed", said["broken"])


def test_a_driver_that_was_killed_has_failed_with_its_signal_and_is_not_started_again() -> None:
    submission, event = settled(entry({"state": "running"}, "failed", -9))
    assert event == "failed" and submission.wanted == "rest"
    assert submission.failed and "SIGKILL" in submission.failed and "resume it" in submission.failed


def test_a_driver_tells_itself_why_it_failed() -> None:
    said = {"state": "interrupted", "why": "resources: a trial wants 8 CPU, the cluster has 2"}
    assert settled(entry(said, "failed", 2))[0].failed == said["why"]


def test_what_an_earlier_driver_said_does_not_count() -> None:
    said = {"state": "stopped", "stop_reason": "it was asked to stop", "beat": 1.0}
    submission, event = settled(entry(said, "failed", 1, message="No module named cbe"))
    assert event == "failed" and "No module named cbe" in (submission.failed or "")


def test_without_a_word_the_last_line_that_was_printed_is_the_reason() -> None:
    failed = settled(entry({}, "failed", 2, message="log\ncbe: no such file\n"))[0].failed
    assert failed == "its driver ended with exit code 2: cbe: no such file"


LOST = [
    ({"state": "running"}, None, None),  # with the whole cluster
    ({"state": "running"}, "failed", None),  # with its node
    ({"state": "stopped", "stop_reason": "interrupted"}, "failed", 130),  # told to end, as before a node goes
]


@pytest.mark.parametrize(("said", "job", "code"), LOST)
def test_a_driver_lost_with_its_node_is_started_again_a_bounded_number_of_times(
    said: dict[str, Any], job: str | None, code: int | None
) -> None:
    found, events = entry(said, job, code), []
    for _ in range(LOSSES + 1):
        submission, event = settled(found)
        events.append((submission.wanted, submission.started is None, event))
        found = replace(found, submission=replace(submission, started=NOON))
    assert events == [("run", True, "lost")] * LOSSES + [("rest", False, "failed")]


@pytest.mark.parametrize(("said", "job", "code"), LOST)
def test_a_study_that_was_to_stop_is_not_started_again_where_its_driver_is_lost(
    said: dict[str, Any], job: str | None, code: int | None
) -> None:
    submission, event = settled(entry(said, job, code, stop=True))
    assert (submission.wanted, submission.failed, event) == ("rest", None, "stopped")


def test_a_job_that_somebody_stopped_is_not_started_again() -> None:
    submission, event = settled(entry({"state": "stopped", "stop_reason": "interrupted"}, "stopped", None))
    assert (submission.wanted, event) == ("rest", "stopped")


def test_a_study_is_left_alone_while_its_driver_lives_waits_or_rests() -> None:
    alive = {"state": "running", "host": socket.gethostname(), "pid": os.getpid()}
    for found in (
        entry({"state": "running"}, "running", None),
        entry({}, "pending", None),
        entry(alive, None),
        entry({}, None, started=None),
        entry({"state": "stopped"}, None, wanted="rest"),
    ):
        assert settled(found) == (found.submission, None)


@pytest.mark.parametrize(
    ("said", "shown"),
    [("finished", "finished"), ("stopped", "stopping"), ("new", "starting"), ("interrupted", "starting")],
)
def test_a_driver_that_is_about_to_exit_is_shown_by_what_it_said_last(said: str, shown: str) -> None:
    submission = Submission("ann", NOON, started=NOON, beat=1.0)
    job = Job("1", "a", "running", "", None, NOON, None)
    entry = Entry("a", submission, Status({"state": said, "beat": 2.0}), job)
    why = "budget.trials of 6 is spent" if shown == "stopping" else None
    assert state_of(entry, said, why, False) == (shown, why)
