"""Intervals and paired differences: against scipy, by hand, and by how often they hold the truth."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from cbe.report.intervals import error_interval, loss_interval, mean_interval
from cbe.report.paired import Difference, paired
from cbe.report.wording import against, figure
from cbe.verdicts import compare
from tests.report.written import BASE, Written, moved


def test_intervals_and_p_values_are_those_of_scipy(written: Written) -> None:
    ours = moved(BASE, -0.02, -0.01, -0.035)
    paper = moved(BASE, 0.01, -0.01, 0.02)
    for config, runs in (("base", BASE), ("paper", paper), ("a", ours)):
        written.add(config, runs)
    first = written.best().ranked[0]
    # By default a tenth of the images validates, how many the errors show: 200, by the 0.035 and the 0.01.
    mean = sum(ours.values()) / 3
    inner = (mean * 600 + 0.5) / 601
    scale = math.sqrt((stats.tvar(list(ours.values())) + 1 / (12 * 200**2)) / 3) / (inner * (1 - inner))
    wanted = stats.t.interval(0.95, 2, loc=special.logit(inner), scale=scale)
    assert first.interval == pytest.approx(tuple(special.expit(wanted)))
    found, wanted = first.versus_paper, stats.ttest_rel(list(ours.values()), list(paper.values()))
    assert found is not None
    assert found.p == pytest.approx(wanted.pvalue)
    assert found.interval == pytest.approx(tuple(wanted.confidence_interval()))
    assert found.n == 3


def test_the_interval_to_the_base_is_the_one_of_the_verdict(written: Written) -> None:
    ours = moved(BASE, -0.02, -0.01, -0.035)
    written.add("base", BASE)
    written.add("a", ours)
    first, judged = written.best().ranked[0], compare(written.study, ours, BASE, images=200)
    assert judged is not None and first.versus_base is not None
    assert (first.versus_base.mean, first.versus_base.interval) == (judged.mean, judged.interval)
    assert (first.verdict, first.pairs_needed) == (judged.said, judged.pairs_needed)


VALUES = st.lists(st.integers(0, 1000), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_any_paired_difference_is_that_of_scipy(thousandths: list[int], random: Any) -> None:
    ours = {(n, n): each / 1000 for n, each in enumerate(thousandths)}
    others = {pair: random.randint(0, 1000) / 1000 for pair in ours}
    found = paired(ours, others)
    assert found is not None
    differences = {round(1000 * (ours[pair] - others[pair])) for pair in ours}
    if len(differences) == 1:
        assert found.interval == (found.mean, found.mean)
        assert found.p == (1.0 if differences == {0} else 0.0)
        return
    wanted = stats.ttest_rel(list(ours.values()), list(others.values()))
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)
    assert found.interval == pytest.approx(tuple(wanted.confidence_interval()), rel=1e-6, abs=1e-9)


def test_runs_that_differ_by_the_same_amount_have_no_spread_whatever_rounding_leaves() -> None:
    ours, others = {(0, 0): 0.1, (1, 1): 0.3, (2, 2): 0.7}, {(0, 0): 0.2, (1, 1): 0.4, (2, 2): 0.8}
    assert len({ours[pair] - others[pair] for pair in ours}) > 1
    found = paired(ours, others)
    assert found is not None
    assert found.interval == (found.mean, found.mean)
    assert (found.mean, found.p) == (pytest.approx(-0.1), 0.0)
    assert paired(ours, ours) == Difference(0.0, (0.0, 0.0), 3, 1.0)


def test_equal_differences_of_errors_on_few_images_do_not_decide() -> None:
    ours, others = {(0, 0): 1 / 12, (1, 1): 3 / 12}, {(0, 0): 2 / 12, (1, 1): 4 / 12}
    found = paired(ours, others, images=12)
    assert found is not None and found.mean == pytest.approx(-1 / 12)
    assert found.interval[0] < -0.3 and found.interval[1] > 0.15 and found.p > 0.1
    wider = {(0, 0): 1 / 12, (1, 1): 8 / 12}  # whose own spread is larger
    assert paired(wider, others, images=12) == paired(wider, others)


def test_rounding_to_images_makes_no_config_better_than_its_equal() -> None:
    """Of two equal configs one is called better or worse in at most 1 of 20 studies, also on few images."""
    draw = np.random.default_rng(0)
    for images, n in ((12, 3), (12, 5), (50, 5)):
        wrong = 0
        for true in draw.beta(2, 18, (4000, n)):  # the error on each split
            counts = draw.binomial(images, true, (2, n))
            ours, others = ({(k, k): count / images for k, count in enumerate(each)} for each in counts)
            found = paired(ours, others, most=1.0, images=images)
            assert found is not None
            wrong += found.p < 0.05
        assert wrong / 4000 < 0.055, (images, n)


def test_one_value_has_no_interval() -> None:
    assert mean_interval("validation_error", [0.3]) is None


ERRORS = st.integers(1, 500).flatmap(
    lambda images: st.tuples(st.just(images), st.lists(st.integers(0, images), min_size=2, max_size=10))
)


@settings(max_examples=200, deadline=None)
@given(ERRORS)
def test_an_interval_of_errors_holds_their_mean_and_stays_between_0_and_1(
    counted: tuple[int, list[int]],
) -> None:
    images, wrong = counted
    errors = [each / images for each in wrong]
    low, high = error_interval(errors, images)
    assert 0 <= low <= sum(errors) / len(errors) <= high <= 1
    assert high - low > 1 / (2 * images * len(errors))  # also where all runs agree
    assert error_interval([1 - each for each in errors], images) == pytest.approx((1 - high, 1 - low))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=10))
def test_an_interval_of_losses_holds_their_mean_and_is_not_below_0(losses: list[float]) -> None:
    low, high = loss_interval(losses)
    mean = sum(losses) / len(losses)
    assert 0 <= low <= mean * (1 + 1e-9) and mean * (1 - 1e-9) <= high < math.inf


@pytest.mark.parametrize(
    ("mean", "spread", "images", "runs"),
    [
        *[(0.02, 0.008, 200, 3), (0.053, 0.033, 12, 3), (0.053, 0.033, 200, 3), (0.053, 0.033, 200, 5)],
        *[(0.053, 0.033, 200, 10), (0.15, 0.065, 200, 2), (0.5, 0.1, 200, 3), (0.9, 0.02, 12, 3)],
    ],
)
def test_19_of_20_intervals_of_an_error_hold_the_true_mean(
    mean: float, spread: float, images: int, runs: int
) -> None:
    draws = 2000
    generator = np.random.default_rng(0)
    both = mean * (1 - mean) / spread**2 - 1
    true = generator.beta(mean * both, (1 - mean) * both, (draws, runs))
    held = 0
    for errors in (generator.binomial(images, true) / images).tolist():
        low, high = error_interval(errors, images)
        held += low <= mean <= high
    assert held / draws > 0.935  # three standard errors below 95 %


def test_19_of_20_intervals_of_a_loss_hold_the_true_mean() -> None:
    generator = np.random.default_rng(0)
    draws = generator.gamma(16, 0.05, (2000, 3)).tolist()  # mean 0.8, standard deviation 0.2
    held = sum(low <= 0.8 <= high for low, high in map(loss_interval, draws))
    assert held / len(draws) > 0.935


def test_runs_without_any_error_leave_room_for_some() -> None:
    low, high = error_interval([0.0, 0.0], images=12)
    assert low == 0 and 0.1 < high < 0.3  # 24 images without an error
    assert error_interval([0.0, 0.0], images=1200)[1] < 0.004


def test_a_difference_of_errors_is_at_most_100_points() -> None:
    ours, others = {(0, 0): 0.1, (1, 1): 0.9}, {(0, 0): 0.9, (1, 1): 0.8}
    found = paired(ours, others, most=1.0)
    assert found is not None and found.interval == (-1.0, 1.0)
    open_ended = paired(ours, others)
    assert open_ended is not None and open_ended.interval[1] > 5


def test_an_end_that_is_not_zero_is_not_shown_as_zero() -> None:
    difference = Difference(-0.009, (-0.0176, -0.0004), 5, 0.04)
    assert against("validation_error", difference, "the base") == (
        "0.90 points (0.04 to 1.76) below the base"
    )


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("validation_error", 0.041, "4.1 % validation error"),
        ("test_error", 0.0, "0.0 % test error"),
        ("validation_loss", 0.25, "0.250 validation loss"),
    ],
)
def test_every_objective_is_written_in_its_unit(metric: str, value: float, said: str) -> None:
    assert figure(metric, value, None, 1).startswith(said)


def test_an_error_that_guessing_would_make_is_called_so(written: Written) -> None:
    written.add("base", {(1, 1): 0.5, (2, 2): 0.45, (3, 3): 0.48})
    written.add("a", {(1, 1): 0.2, (2, 2): 0.25, (3, 3): 0.22})
    facts = {"classes": ["cat", "dog"], "validation": 12, "test": None}
    written.folder.write("data.json", json.dumps(facts).encode())
    first, base = written.best().ranked
    assert "chance" not in first.sentence
    assert base.sentence.endswith("; at chance level (50.0 % for 2 classes).")
    written.folder.delete("data.json")
    assert "chance" not in written.best().ranked[1].sentence


def test_intervals_count_on_as_many_images_as_the_driver_found(tmp_path: Path) -> None:
    written = Written(tmp_path, data={"validation": 0.2})
    errors = [0.25, 0.5, 0.25]  # seem to be counted on 4 images
    written.add("base", dict(zip(BASE, errors, strict=True)))
    facts = {"classes": ["cat", "dog"], "validation": 200, "test": None}
    written.folder.write("data.json", json.dumps(facts).encode())
    assert written.best().ranked[0].interval == pytest.approx(error_interval(errors, images=200))
    written.folder.delete("data.json")
    assert written.best().ranked[0].interval == pytest.approx(error_interval(errors, images=4))
