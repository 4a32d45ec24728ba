"""The sequential verdict: against scipy, by simulated studies, and on stores that were made up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from cbe.report.best import Answer, best
from cbe.spec import StudyConfig
from cbe.verdicts import ALPHA, POWER, compare, critical_values, judge
from tests.made import Made

Array = NDArray[np.float64]

STUDIES = 10_000
IMAGES = 200  # that an error is counted on
ROUNDING = math.sqrt(1 / 6) / IMAGES
SPREAD = 0.017  # of a paired difference, as measured among good configs on digits
HEADS = {"ensemble.heads": 4, "loss.weights.lb": 1.0}


@dataclass(frozen=True)
class Judged:
    """What `judge` says of many comparisons at once."""

    said: NDArray[np.str_]
    low: Array
    high: Array
    n: NDArray[np.int64]


def judged(
    differences: Array, comparisons: int = 1, margin: float | None = None, least_spread: float = 0.0
) -> Judged:
    """The same as `judge` on every row, by arrays: a test below compares the two."""
    looks = differences.shape[-1]
    n = np.arange(2, looks + 1)
    mean = differences.cumsum(-1)[..., 1:] / n
    spread = np.stack([differences[..., :k].std(-1, ddof=1) for k in n], -1)
    reach = np.array(critical_values(looks, ALPHA / comparisons)) * np.maximum(spread, least_spread)
    low, high = mean - reach / np.sqrt(n), mean + reach / np.sqrt(n)
    inside = (-margin < low) & (high < margin) if margin else np.zeros_like(low, bool)
    said = np.select([high < 0, low > 0, inside], ["better", "worse", "equivalent"], "undecided")
    is_decided = said != "undecided"
    stopped = np.where(is_decided.any(-1), is_decided.argmax(-1), looks - 2)[..., None]

    def at_the_end(values: Any) -> Any:
        return np.take_along_axis(values, stopped, -1)[..., 0]

    return Judged(at_the_end(said), at_the_end(low), at_the_end(high), stopped[..., 0] + 2)


def errors(kind: str, shape: tuple[int, ...]) -> Array:
    """Of configs that are all alike."""
    generator = np.random.default_rng(5)
    if kind == "normal":
        return generator.normal(0.05, 0.012, shape)
    if kind == "heavy-tailed":
        return 0.05 + 0.01 * generator.standard_t(3, shape)
    if kind == "counted":
        return generator.binomial(IMAGES, 0.05, shape) / IMAGES
    assert kind == "counted, some diverge"
    rates = np.minimum(generator.gamma(1, 0.05, shape), 1)
    return generator.binomial(IMAGES, rates) / IMAGES


# --- the statistics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [2, 5, 12])
@pytest.mark.parametrize("finalists", [0, 1, 2])
@pytest.mark.parametrize("kind", ["normal", "heavy-tailed", "counted", "counted, some diverge"])
def test_at_most_one_null_study_in_twenty_calls_any_config_better(
    kind: str, finalists: int, looks: int
) -> None:
    comparisons = 1 + finalists  # the paper's config as well; all with the same runs of the base
    runs = errors(kind, (STUDIES, comparisons + 1, looks))
    found = judged(
        runs[:, 1:] - runs[:, :1], comparisons, 0.01, ROUNDING if kind.startswith("counted") else 0.0
    )
    assert (found.said == "better").any(1).mean() <= ALPHA
    # Two-sided, as the intervals are. Three standard errors of 10,000 studies are 0.0065.
    assert ((found.low > 0) | (found.high < 0)).any(1).mean() <= ALPHA + 0.0065


@pytest.mark.parametrize("true", [0.0, -0.01, 0.02])
def test_the_interval_where_a_study_stops_holds_the_true_difference_in_19_of_20(true: float) -> None:
    found = judged(np.random.default_rng(1).normal(true, SPREAD, (STUDIES, 12)), margin=0.01)
    assert len(set(found.n.tolist())) > 3  # it stops at many looks
    assert ((found.low <= true) & (true <= found.high)).mean() >= 1 - ALPHA - 0.0065


@pytest.mark.parametrize("sign", [1, -1])
def test_two_points_are_decided_in_most_studies_of_twelve_pairs(sign: int) -> None:
    differences = np.random.default_rng(2).normal(sign * 0.02, SPREAD, (STUDIES, 12))
    found = judged(differences, comparisons=3, margin=0.01)
    right, wrong = ("worse", "better") if sign > 0 else ("better", "worse")
    assert (found.said == right).mean() >= 0.7
    assert (found.said == wrong).mean() < 0.001
    assert found.n.mean() < 11  # some need fewer than all


def test_configs_that_differ_by_the_margin_are_hardly_ever_called_equivalent() -> None:
    generator = np.random.default_rng(3)
    at_the_margin = judged(generator.normal(0.01, 0.006, (STUDIES, 12)), margin=0.01)
    assert (at_the_margin.said == "equivalent").mean() <= ALPHA / 2 + 0.0065
    alike = judged(generator.normal(0.0, 0.006, (STUDIES, 12)), margin=0.01)
    assert (alike.said == "equivalent").mean() > 0.9


@pytest.mark.parametrize("comparisons", [1, 3])
@pytest.mark.parametrize("size", [2.0, 0.8, 0.4])
def test_a_study_of_as_many_pairs_as_are_said_to_be_needed_sees_the_difference(
    size: float, comparisons: int
) -> None:
    # Two pairs whose mean and deviation are those of the population.
    one_look = judge([-size - math.sqrt(0.5), -size + math.sqrt(0.5)], looks=12, comparisons=comparisons)
    assert one_look is not None and one_look.pairs_needed is not None
    pairs = one_look.pairs_needed
    found = judged(np.random.default_rng(4).normal(-size, 1, (STUDIES, pairs)), comparisons)
    fewer = judged(np.random.default_rng(4).normal(-size, 1, (STUDIES, pairs * 2 // 3)), comparisons)
    assert (found.said == "better").mean() == pytest.approx(POWER, abs=0.07)
    assert (fewer.said == "better").mean() < POWER - 0.1


def test_what_is_undecided_at_the_last_pair_needs_more_pairs_than_there_were() -> None:
    for differences in np.random.default_rng(6).normal(-0.01, SPREAD, (300, 12)):
        found = judge(differences.tolist(), looks=12, comparisons=3)
        assert found is not None
        needs = found.pairs_needed
        assert needs is None or needs > 12


def test_the_arrays_of_these_tests_say_what_the_verdict_says() -> None:
    runs = errors("counted", (300, 2, 8))
    runs[:100, 1] -= 0.03
    runs[100:150, 1] += 0.03
    runs[200:] = 0.05 + (runs[200:] - 0.05) / 10
    differences = runs[:, 1] - runs[:, 0]
    found = judged(differences, 2, 0.01, ROUNDING)
    assert set(found.said.tolist()) == {"better", "worse", "equivalent", "undecided"}
    for at, each in enumerate(differences.tolist()):
        alone = judge(each, looks=8, comparisons=2, margin=0.01, least_spread=ROUNDING)
        assert alone is not None
        assert (alone.said, alone.n) == (found.said[at], found.n[at])
        assert alone.interval == pytest.approx((found.low[at], found.high[at]))


def test_a_single_look_is_the_paired_t_test_of_scipy() -> None:
    runs, base = [0.051, 0.043], [0.072, 0.066]
    wanted = stats.ttest_rel(runs, base).confidence_interval(1 - ALPHA / 1.25)  # what is kept for few pairs
    found = judge([a - b for a, b in zip(runs, base, strict=True)], looks=2)
    assert found is not None
    assert found.interval == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize("looks", [3, 5])
def test_bounds_spend_the_error_rate_as_the_square_of_the_pairs(looks: int) -> None:
    # The integral of scipy's multivariate normal over the region in which no look has decided.
    alpha = ALPHA / 3
    found = critical_values(looks, alpha)
    sums = np.array([[min(i, j) for j in range(2, looks + 1)] for i in range(2, looks + 1)], float)
    for n in range(2, looks + 1):
        k = n - 1
        nominal = [stats.t.sf(bound, at - 1) for at, bound in enumerate(found[:k], start=2)]
        bounds = stats.norm.isf(nominal) * np.sqrt(np.arange(2, n + 1))
        normal = stats.multivariate_normal(cov=sums[:k, :k], abseps=1e-6, releps=1e-6, seed=0)
        inside = normal.cdf(bounds, lower_limit=-bounds)
        assert 1 - inside == pytest.approx(alpha / 1.25 * (n / looks) ** 2, rel=0.02)


# --- one comparison -----------------------------------------------------------------------------------------


def test_one_pair_gives_no_verdict() -> None:
    assert judge([-0.5], looks=12) is None
    assert judge([], looks=12) is None


def test_a_verdict_stays_what_it_was_at_the_look_that_decided() -> None:
    first = judge([-0.02, -0.021, -0.02, -0.019, -0.02], looks=12)
    later = judge([-0.02, -0.021, -0.02, -0.019, -0.02, 0.5, 0.5], looks=12)
    assert first is not None and first.said == "better" and first.n < 5
    assert later == first


def test_equal_runs_on_few_images_prove_nothing_at_once() -> None:
    one_image = [-1 / IMAGES] * 3
    exact = judge(one_image, looks=12)
    counted = judge(one_image, looks=12, least_spread=ROUNDING)
    assert exact is not None and exact.said == "better"
    assert counted is not None and counted.said == "undecided"


def test_no_interval_reaches_beyond_what_a_difference_can_be() -> None:
    found = judge([-0.5, 0.4], looks=12, largest=1.0)
    assert found is not None and found.interval == (-1.0, 1.0)


def test_a_difference_of_zero_needs_more_pairs_than_anybody_has() -> None:
    found = judge([-0.01, 0.01], looks=2)
    assert found is not None and (found.said, found.pairs_needed) == ("undecided", None)


def test_where_more_is_better_the_same_runs_say_the_opposite() -> None:
    base = {(n, n): 1.0 + 0.01 * n for n in range(3, 7)}  # after the three pairs of the search
    more = {pair: value + 0.1 + 0.001 * (pair[0] % 2) for pair, value in base.items()}
    found = {}
    for direction in ("minimize", "maximize"):
        objective = {"metric": "validation_loss", "direction": direction}
        study = StudyConfig.model_validate({"name": "a", "objective": objective, "confirm": {"runs": 4}})
        found[direction] = compare(study, more, base)
    lower, higher = found["minimize"], found["maximize"]
    assert lower is not None and higher is not None
    assert (lower.said, higher.said) == ("worse", "better")
    assert lower.mean == higher.mean == pytest.approx(0.1005)
    assert lower.interval == pytest.approx(higher.interval)


def test_pairs_are_looked_at_in_the_order_in_which_they_were_planned() -> None:
    seeds = [9, 3, 7, 4]
    confirm = {"seeds": seeds, "label_splits": seeds}
    study = StudyConfig.model_validate({"name": "a", "confirm": confirm})
    differences = dict(zip(study.confirm_pairs, (-0.02, -0.022, -0.021, 0.3), strict=True))
    base = dict.fromkeys(sorted(differences), 0.5)
    found = compare(study, {pair: 0.5 + by for pair, by in differences.items()}, base)
    assert found is not None and (found.said, found.n) == ("better", 3)


# --- made-up stores -----------------------------------------------------------------------------------------


def confirmed(
    where: Path,
    differences: Sequence[float],
    *,
    searched: float = 0.05,
    base: bool = True,
    **sections: Any,
) -> Made:
    """A study whose config of four heads ends so far from the base, pair by pair; the paper's always −2."""
    made = Made(where, confirm={"configs": 1, "runs": 6}, **sections)
    made.trial(0.08, preset="paper")
    if base:
        made.trial(0.12, preset="base")
    made.trial(searched, HEADS)
    for number, difference in enumerate(differences, start=1):
        about: dict[str, Any] = {"role": "confirm", "pair": (number, number)}
        if base:
            made.trial(0.12, preset="base", **about)
        made.trial(0.1 + 0.001 * (number % 2), preset="paper", **about)
        if searched < 0.12:
            made.trial(0.12 + difference, HEADS, **about)
    return made


def verdicts(answer: Answer) -> dict[str, str | None]:
    return {each.preset or "searched": each.verdict for each in answer.ranked}


@pytest.mark.parametrize(
    ("differences", "verdict", "words"),
    [
        ((-0.04, -0.045, -0.04, -0.045), "better", "below the base: better, decided after 3 of at most 6"),
        ((0.04, 0.045, 0.04, 0.045), "worse", "above the base: worse, decided after 3 of at most 6"),
        (
            (0.0, 0.005, -0.005, 0.0, 0.005, 0.0),
            "equivalent",
            "equivalent within 1 point, decided after 5 of at most 6",
        ),
        (
            (-0.05, 0.01, -0.03, 0.02),
            "undecided",
            "undecided after 4 of at most 6 pairs; a difference of this size takes about",
        ),
        ((-0.02, 0.02), "undecided", "a difference of this size takes more than 1,000"),
    ],
)
def test_the_answer_says_what_the_pairs_have_decided(
    differences: Sequence[float], verdict: str, words: str, tmp_path: Path
) -> None:
    answer = best(confirmed(tmp_path, differences).folder, k=3)
    assert verdicts(answer)["searched"] == verdict
    assert words in next(each.sentence for each in answer.ranked if not each.preset)
    assert verdicts(answer)["base"] is None


def test_the_papers_config_is_always_judged(tmp_path: Path) -> None:
    ahead, behind = (
        best(confirmed(tmp_path / name, [0.05] * 4, searched=searched).folder)
        for name, searched in (("ahead", 0.05), ("behind", 0.3))
    )
    assert verdicts(ahead)["paper"] == verdicts(behind)["paper"] == "better"


def test_where_no_config_is_ahead_of_the_base_none_is_confirmed_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    answer = best(confirmed(tmp_path, [0.0] * 4, searched=0.12).folder)
    assert answer.confirmed and answer.of == 0
    assert verdicts(answer) == {"paper": "better", "base": None}
    assert (
        "No config of the search was confirmed: none is ahead of the base on the runs they share."
        in answer.sentence
    )


def test_without_the_base_there_is_no_verdict(tmp_path: Path) -> None:
    answer = best(confirmed(tmp_path, [-0.04] * 4, base=False).folder)
    assert set(verdicts(answer).values()) == {None}
    assert "not compared with the base" in answer.headline


def test_one_confirmed_pair_is_no_verdict(tmp_path: Path) -> None:
    answer = best(confirmed(tmp_path, [-0.04]).folder)
    assert set(verdicts(answer).values()) == {None}
    assert "on the one run they share" in answer.sentence


def test_a_confirmation_run_that_failed_is_left_out_and_told(tmp_path: Path) -> None:
    made = confirmed(tmp_path, [-0.04, -0.045, -0.04])
    failed: dict[str, Any] = {"role": "confirm", "state": "failed", "steps": 0}
    made.trial(None, HEADS, pair=(4, 4), **failed)
    made.trial(0.12, preset="base", role="confirm", pair=(4, 4))
    answer = best(made.folder)
    assert verdicts(answer)["searched"] == "better"
    assert answer.ranked[0].n == 3 and "1 more of its runs failed" in answer.sentence
