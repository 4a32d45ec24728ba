"""How trials would end, forecast from a rung: the properties of the chances, and whether they come true."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cbe.study.search.forecast import MIN_ENDS, chances_to_lead

Array = np.ndarray[Any, Any]


def chances(at_rung: Any, passed: Any, ends: Any) -> list[float]:
    return chances_to_lead(*(np.array(each, dtype=float) for each in (at_rung, passed, ends))).tolist()


def line(slope: float, noise: float, spread: float, rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Values at a rung and at the end, which lie around a line."""
    at_rung = rng.normal(-2.0, spread, count)
    return at_rung, -2.3 + slope * (at_rung + 2.0) + rng.normal(0.0, noise, count)


def test_equal_values_have_equal_chances() -> None:
    found = chances([0.3, 0.1, 0.3, 0.1], [0.2, 0.4, 0.3], [0.1, 0.3, 0.2])
    assert found[0] == found[2] < found[1] == found[3]


def test_a_worse_value_never_has_the_better_chance() -> None:
    rng = np.random.default_rng(1)
    for slope in (-0.5, 0.0, 0.8):
        for noise in (0.05, 0.5):
            for _ in range(50):
                at_rung, ends = line(slope, noise, 1.0, rng, 20)
                for values, final in ((np.exp(at_rung), np.exp(ends)), (at_rung, ends)):
                    found = chances_to_lead(np.sort(values[:8]), values[8:], final[8:])
                    assert (np.diff(found) <= 0).all()
                    assert (found >= 0).all() and found[0] > 0 and found[0] <= 0.5


def test_chances_stand_in_the_order_of_the_trials_they_are_of() -> None:
    at_rung = np.array([0.5, 0.1, 0.3, 0.2])
    found = np.array(chances(at_rung, [0.3, 0.4, 0.2], [0.2, 0.35, 0.15]))
    order = np.argsort(at_rung)
    assert found[order].tolist() == chances(at_rung[order], [0.3, 0.4, 0.2], [0.2, 0.35, 0.15])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_has_no_chance_and_takes_none_from_others(wrong: float) -> None:
    others = chances([0.2, 0.3, 0.4], [0.2, 0.4, 0.3], [0.1, 0.3, 0.2])
    first, *found = chances([wrong, 0.2, 0.3, 0.4], [0.2, 0.4, 0.3], [0.1, 0.3, 0.2])
    assert first == 0.0 and found == pytest.approx(others, abs=0.02) and found[0] > 0


@pytest.mark.parametrize("count", range(MIN_ENDS))
def test_nothing_is_forecast_before_two_trials_have_ended(count: int) -> None:
    assert chances([0.1, 0.2], [0.2] * count, [0.1] * count) == [0.0, 0.0]
    assert chances([0.1, 0.2], [0.2] * MIN_ENDS, [0.1] * MIN_ENDS)[0] > 0


def test_without_trials_at_the_rung_there_are_no_chances() -> None:
    assert chances([], [0.2, 0.3], [0.1, 0.2]) == []


def test_trials_that_ended_alike_from_equal_values_leave_room_for_doubt() -> None:
    first, second = chances([0.2, 0.4], [0.3, 0.3], [0.2, 0.2])
    assert 0 < second < first == 0.5


def test_chances_do_not_depend_on_the_unit_of_the_values() -> None:
    rng = np.random.default_rng(2)
    at_rung, ends = line(0.8, 0.3, 0.5, rng, 12)
    for values, final in ((np.exp(at_rung), np.exp(ends)), (at_rung - 1.0, ends - 1.0)):
        plain = chances(values[:4], values[4:], final[4:])
        assert chances(7 * values[:4], 7 * values[4:], 7 * final[4:]) == pytest.approx(plain)


def test_of_maximised_values_told_with_their_sign_turned_the_largest_has_the_best_chance() -> None:
    accuracies = -np.array([0.9, 0.7, 0.5])
    found = chances(accuracies, [-0.6, -0.8, -0.4], [-0.7, -0.9, -0.5])
    assert found[0] > found[1] > found[2] and found[0] == 0.5


def test_a_value_far_behind_where_the_rung_tells_the_end_is_given_up() -> None:
    at_rung, ends = line(0.8, 0.02, 0.5, np.random.default_rng(3), 30)
    first, last = chances(np.exp([-5.0, -1.0]), np.exp(at_rung), np.exp(ends))
    assert first == 0.5 and last < 0.001


def test_where_a_rung_says_nothing_an_average_trial_keeps_more_of_its_chance() -> None:
    found = []
    for noise in (0.02, 0.6):
        at_rung, ends = line(0.0 if noise > 0.1 else 0.8, noise, 0.5, np.random.default_rng(4), 30)
        found.append(chances(np.exp([-2.0]), np.exp(at_rung), np.exp(ends))[0])
    assert found[0] < 0.001 and found[1] > 0.02


def led(ends: int, curve: Callable[[Array], Array], slope: float, noise: float, spread: float) -> Array:
    """The stated chance of one trial at a rung, and whether it then ended ahead, of many made-up races."""
    rng, found = np.random.default_rng(5), []
    for _ in range(6000):
        at_rung, final = line(slope, noise, spread, rng, ends + 1)
        (said,) = chances_to_lead(curve(at_rung[:1]), curve(at_rung[1:]), curve(final[1:]))
        found.append((said, final[0] < final[1:].min()))
    return np.array(found, dtype=float)


def negative(values: Array) -> Array:
    return values - 3.0


@pytest.mark.parametrize(
    ("ends", "curve", "noise", "spread"),
    [
        (3, np.exp, 0.3, 0.4),
        (3, np.exp, 0.3, 1.0),
        (8, np.exp, 0.3, 0.4),
        (8, negative, 0.3, 1.0),
        (20, np.exp, 0.3, 0.4),
    ],
)
def test_on_made_up_lines_as_many_trials_lead_as_their_chances_say(
    ends: int, curve: Callable[[Array], Array], noise: float, spread: float
) -> None:
    found = led(ends, curve, 0.8, noise, spread)
    said, ahead = found.T
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.499)):
        some = (said >= low) & (said < high)
        assert some.sum() > 100
        expected = said[some].mean()
        assert ahead[some].mean() == pytest.approx(expected, abs=0.02 + 0.75 / some.sum() ** 0.5)
    # One that is expected to end first is said to do so in half of all cases: it is let pass anyway.
    assert ahead[said == 0.5].mean() > 0.5


def test_of_many_ends_the_chances_hold_where_the_rung_says_less_than_was_believed() -> None:
    said, ahead = led(20, np.exp, 0.2, 0.5, 0.4).T
    assert ahead.mean() == pytest.approx(said.mean(), abs=0.03)
    fair = said >= 0.2
    assert not fair.any() or ahead[~fair].mean() < 0.2
