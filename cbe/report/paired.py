"""How sure a difference is of runs that share seed and label split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, stdev

from cbe.report.intervals import Interval, t_quantile
from cbe.spec.terms import Pair

_ROUNDING = 1e-12  # of the values: differences between numbers of the same few digits are no spread


@dataclass(frozen=True)
class Difference:
    """A config minus another, over the runs that both have on the same seed and label split."""

    mean: float
    interval: Interval  # 95 %, by Student's t, within what a difference can be
    n: int
    p: float  # two-sided


def paired(
    values: Mapping[Pair, float],
    others: Mapping[Pair, float],
    most: float = math.inf,
    images: int | None = None,
) -> Difference | None:
    """The paired t-test of two configs; None where they share fewer than two runs.

    `most` is the largest difference that is possible: 1 for errors. Errors counted on N `images` move in
    steps of 1/N: the variance of a difference is at least that of rounding, 1/(12 N²) for each of the two.
    """
    shared = sorted(values.keys() & others.keys())
    if len(shared) < 2:
        return None
    n, differences = len(shared), [values[pair] - others[pair] for pair in shared]
    noise = _ROUNDING * max(max(abs(values[pair]), abs(others[pair])) for pair in shared)
    middle = mean(differences)
    rounding = math.sqrt(1 / 6) / images if images else 0.0
    if max(differences) - min(differences) <= noise and not rounding:
        middle = 0.0 if abs(middle) <= noise else middle
        return Difference(middle, (middle, middle), n, 0.0 if middle else 1.0)
    from scipy.special import stdtr  # takes a third of a second to load

    spread = max(stdev(differences), rounding) / math.sqrt(n)
    reach = t_quantile(n) * spread
    interval = (max(-most, middle - reach), min(most, middle + reach))
    return Difference(middle, interval, n, float(2 * stdtr(n - 1, -abs(middle) / spread)))
