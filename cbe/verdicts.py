"""Whether a config is better than the base: a paired comparison that may be looked at after every pair.

The design is group-sequential. Of the error rate α, the share (n/N)² is spent by the n-th of at most N pairs
(alpha spending: Lan and DeMets 1983, the power family of Kim and DeMets 1987). Bounds are computed for
normal differences of known variance by recursive integration (Armitage, McPherson and Rowe 1969), and each
is replaced by Student's quantile of the same nominal level (Jennison and Turnbull 2000, section 4.4). At few
pairs that spends up to a quarter more than α (by simulation, 0.030 instead of 0.025): α is divided by 1.25.

The interval after each pair is the repeated confidence interval (Jennison and Turnbull 1989): all of them
together hold the true difference with probability 1 − α, so stopping at any look is fair. Where several
configs are compared with the base, each has its part of α (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from cbe.spec import StudyConfig
from cbe.spec.metrics import METRICS
from cbe.spec.terms import Pair

Interval = tuple[float, float]
Said = Literal["better", "worse", "equivalent", "undecided"]

ALPHA = 0.05  # of all comparisons of a study together
SPENDING = 2.0  # the power of n/N
POWER = 0.8  # with which `pairs_needed` would see the difference
MOST_PAIRS = 1000
_INFLATION = 1.25  # of the error rate by Student's quantiles
_MORE_PAIRS = 1.1  # than a single look takes, by simulation
_NODES = 48  # of the integration


@dataclass(frozen=True)
class Verdict:
    """What the pairs so far say of a config against the base."""

    said: Said
    mean: float  # of the differences, config minus base
    interval: Interval  # of that mean; all looks together hold it at 1 − α
    n: int  # pairs that this verdict is of: up to the first look that decided
    pairs_needed: int | None  # in all, to see a difference of this size; None: decided, or over MOST_PAIRS


def compare(
    study: StudyConfig, runs: Mapping[Pair, float], base: Mapping[Pair, float], images: int | None = None
) -> Verdict | None:
    """The verdict on a config by its confirmation and the base's; None where they share fewer than two pairs.

    Errors counted on N `images` move in steps of 1/N: the variance of a difference is at least that of
    rounding, 1/(12 N²) for each of the two.
    """
    objective, planned = study.objectives[0], {pair: n for n, pair in enumerate(study.confirm_pairs)}
    shared = sorted(runs.keys() & base.keys(), key=lambda pair: (planned.get(pair, len(planned)), pair))
    sign = 1 if objective.direction == "minimize" else -1
    found = judge(
        [sign * (runs[pair] - base[pair]) for pair in shared],
        looks=len(planned),
        comparisons=study.comparisons,
        margin=study.margin,
        least_spread=math.sqrt(1 / 6) / images if images else 0.0,
        largest=METRICS[objective.metric].unit.largest,
    )
    if found is None or sign == 1:
        return found
    return replace(found, mean=-found.mean, interval=(-found.interval[1], -found.interval[0]))


def judge(
    differences: Sequence[float],
    looks: int,
    comparisons: int = 1,
    *,
    margin: float | None = None,
    least_spread: float = 0.0,
    largest: float = math.inf,
) -> Verdict | None:
    """The verdict at the first pair that decides, or at the last; None for fewer than two pairs.

    Negative differences are better. They are in the order in which their pairs were planned, `looks` is the
    largest number of pairs, `comparisons` of how many this is one. Two configs that differ by less than
    `margin` are equivalent. `least_spread` is the standard deviation below which differences cannot agree,
    `largest` the largest possible difference.

    >>> judge([-0.02, -0.03, -0.02, -0.03, -0.02], looks=5).said
    'better'
    """
    if len(differences) < 2:
        return None
    bounds = critical_values(max(looks, len(differences)), ALPHA / comparisons)
    for n in range(2, len(differences) + 1):
        seen = differences[:n]
        mean, spread = fmean(seen), max(stdev(seen), least_spread) / math.sqrt(n)
        reach = bounds[n - 2] * spread if spread else 0.0
        interval = (max(-largest, mean - reach), min(largest, mean + reach))
        said = _say(interval, margin)
        if said != "undecided":
            return Verdict(said, mean, interval, n, None)
    return Verdict("undecided", mean, interval, n, _pairs_needed(mean, spread * math.sqrt(n), comparisons))


def _say(interval: Interval, margin: float | None) -> Said:
    low, high = interval
    if high < 0:
        return "better"
    if low > 0:
        return "worse"
    return "equivalent" if margin is not None and -margin < low and high < margin else "undecided"


def _pairs_needed(mean: float, deviation: float, comparisons: int) -> int | None:
    """Pairs with which a difference of this size and spread would be seen, in a study planned for so many."""
    from scipy.special import ndtri

    if not mean:
        return None
    quantile = -ndtri(ALPHA / _INFLATION / comparisons / 2)
    of_normal = ((quantile + ndtri(POWER)) * deviation / mean) ** 2
    # What Student's quantile adds: Guenther 1981.
    pairs = math.ceil(_MORE_PAIRS * of_normal + quantile**2 / 2)
    return pairs if pairs <= MOST_PAIRS else None


@cache
def critical_values(looks: int, alpha: float) -> tuple[float, ...]:
    """|t| from which the 2nd, 3rd, … of so many pairs decides.

    >>> [round(bound, 1) for bound in critical_values(5, 0.05)]
    [99.5, 9.5, 4.7, 3.4]
    """
    from scipy.special import ndtr, stdtrit

    unit, unit_weights = np.polynomial.legendre.leggauss(_NODES)
    # The sum of n standard normal differences that has decided nothing yet: its density at these places.
    places, mass = np.zeros(1), np.ones(1)
    found, spent, step = [], 0.0, math.sqrt(2)  # the first look is after two pairs
    for n in range(2, looks + 1):
        spend = alpha / _INFLATION * (n / looks) ** SPENDING - spent
        spent += spend
        low, high = 0.0, 40.0 * math.sqrt(n)
        for _ in range(60):
            middle = (low + high) / 2
            beyond = mass @ (ndtr((-middle - places) / step) + ndtr((places - middle) / step))
            low, high = (middle, high) if beyond > spend else (low, middle)
        nominal = 2 * ndtr(-high / math.sqrt(n))
        found.append(float(-stdtrit(n - 1, nominal / 2)))
        new = high * unit
        moved = (new[:, None] - places[None, :]) / step
        kernel = np.exp(-(moved**2) / 2) / (step * math.sqrt(2 * math.pi))
        places, mass, step = new, high * unit_weights * (kernel @ mass), 1.0
    return tuple(found)
