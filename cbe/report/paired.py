"""How sure a mean is, and how sure a difference of runs that share seed and label split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

# Of scipy.stats, the few functions needed here; it takes a second to load, and this a fraction of one.
from scipy.special import stdtr, stdtrit

Pair = tuple[int, int]  # seed, label split
Interval = tuple[float, float]

LEVEL = 0.95
_ROUNDING = 1e-12  # of the values: differences between numbers of the same few digits are no spread


@dataclass(frozen=True)
class Difference:
    """A config minus another, over the runs that both have on the same seed and label split."""

    mean: float
    interval: Interval  # 95 %, by Student's t
    n: int
    p: float  # two-sided


def t_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of independent runs; None where one run alone shows no spread.

    >>> t_interval([0.1])
    """
    if len(values) < 2:
        return None
    middle, spread = mean(values), stdev(values)
    reach = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * spread / math.sqrt(len(values))
    return (middle - reach, middle + reach)


def paired(values: Mapping[Pair, float], others: Mapping[Pair, float]) -> Difference | None:
    """The paired t-test of two configs; None where they share fewer than two runs."""
    shared = sorted(values.keys() & others.keys())
    if len(shared) < 2:
        return None
    n, differences = len(shared), [values[pair] - others[pair] for pair in shared]
    noise = _ROUNDING * max(max(abs(values[pair]), abs(others[pair])) for pair in shared)
    middle = mean(differences)
    if max(differences) - min(differences) <= noise:
        middle = 0.0 if abs(middle) <= noise else middle
        return Difference(middle, (middle, middle), n, 0.0 if middle else 1.0)
    interval = t_interval(differences)
    assert interval is not None
    t = abs(middle) / (stdev(differences) / math.sqrt(n))
    return Difference(middle, interval, n, float(2 * stdtr(n - 1, -t)))
