"""Failed logins: counted, forgotten in time, and never more of them kept than a bound."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from cbe.service.auth.failures import Failures
from tests.service.auth.test_tokens import Clock

HOME, AWAY = ("10.0.0.1", "0123abcd"), ("10.0.0.1", "?")


def test_after_ten_failures_in_a_minute_one_must_wait_until_the_first_is_a_minute_old() -> None:
    clock = Clock()
    failures = Failures(clock=clock)
    for _ in range(10):
        assert failures.retry_after_s(HOME) is None
        failures.note(HOME)
        clock.now += 2
    assert failures.retry_after_s(HOME) == 40 and failures.retry_after_s(AWAY) is None
    clock.now += 39
    assert failures.retry_after_s(HOME) == 1
    clock.now += 1
    assert failures.retry_after_s(HOME) is None
    failures.note(HOME)
    assert failures.retry_after_s(HOME) == 2


def test_failures_are_forgotten_in_time_and_never_more_than_a_bound() -> None:
    clock = Clock()
    failures = Failures(most=1, clock=clock, most_keys=100)
    for number in range(1000):
        failures.note((f"10.0.0.{number}", "?"))
        assert len(failures) <= 100
    assert failures.retry_after_s(("10.0.0.999", "?")) == 60 and len(failures) == 100
    clock.now += 60
    failures.note(HOME)
    assert len(failures) == 1


def test_of_too_many_the_one_that_failed_longest_ago_is_forgotten() -> None:
    failures = Failures(most=2, clock=Clock(), most_keys=2)
    other = ("10.0.0.2", "?")
    for key in (HOME, AWAY, HOME, other):
        failures.note(key)
    assert failures.retry_after_s(HOME) == 60
    failures.note(AWAY)
    assert failures.retry_after_s(AWAY) is None


@given(
    steps=st.lists(st.tuples(st.sampled_from([HOME, AWAY]), st.booleans(), st.integers(0, 9)), max_size=60),
    most=st.integers(1, 4),
)
def test_the_brake_agrees_with_counting_all_failures(
    steps: list[tuple[tuple[str, str], bool, int]], most: int
) -> None:
    clock = Clock()
    failures = Failures(most=most, window_s=20, clock=clock)
    noted: list[tuple[tuple[str, str], float]] = []
    for key, fails, later in steps:
        clock.now += later
        if fails:
            failures.note(key)
            noted.append((key, clock.now))
        for each in (HOME, AWAY):
            young = [at for who, at in noted if who == each and at + 20 > clock.now]
            wanted = young[-most] + 20 - clock.now if len(young) >= most else None
            assert failures.retry_after_s(each) == wanted
