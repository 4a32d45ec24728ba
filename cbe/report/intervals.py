"""95 % intervals of the mean of a few runs, within what the metric can be.

An error lies between 0 and 1, and most errors are near 0. Student's interval around the mean of three runs
often begins below 0, and with two runs it may end above 1. So Student's interval is computed on the logit
scale: the standard error of the mean m is divided by m (1 − m) (delta method), and both ends are transformed
back. Surveys use this interval for proportions. It holds the mean, and its ends cannot leave 0 to 1.

Two corrections depend on the number N of images that an error is counted on. The mean moves by half an image
towards 1/2, so that a mean of 0 has a logit. The variance of rounding to steps of 1/N, 1/(12 N²), is added to
that of the runs. Runs that all agree show no spread: their interval is the one of a proportion of n N images.

Coverage of the true mean by simulation: 20,000 draws of n runs whose true errors have a beta distribution,
each counted on N images. The plain t-interval is given for comparison.

| true mean ± SD of runs | N | n = 2 | n = 3 | n = 5 | n = 10 | plain t, n = 3 |
| --- | --- | --- | --- | --- | --- | --- |
| 2 ± 0.8 % | 200 | 99.1 % | 97.5 % | 95.9 % | 95.2 % | 94.4 % |
| 5.3 ± 3.3 % | 12 | 98.7 % | 98.6 % | 97.4 % | 97.5 % | 79.3 % |
| 5.3 ± 3.3 % | 200 | 97.2 % | 95.9 % | 94.9 % | 94.4 % | 92.5 % |
| 15 ± 6.5 % | 200 | 96.5 % | 95.2 % | 95.0 % | 94.7 % | 94.1 % |
| 50 ± 10 % | 200 | 95.7 % | 95.1 % | 95.4 % | 95.0 % | 94.9 % |
| 90 ± 2 % | 12 | 99.3 % | 97.6 % | 97.4 % | 96.6 % | 90.9 % |

A loss has no upper end and is not below 0: its interval is Student's on the logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from statistics import NormalDist, fmean, variance

from cbe.spec.metrics import METRICS, PERCENT

Interval = tuple[float, float]

LEVEL = 0.95
_NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)
_MOST_IMAGES = 10_000  # that errors in single precision can be counted back to; of more, a step is nothing


def t_quantile(n: int) -> float:
    """Of Student's distribution for n runs: how many standard errors an interval reaches to either side."""
    # Not scipy.stats, which takes a second to load, and only here: the service answers without either.
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, (1 + LEVEL) / 2))


def mean_interval(metric: str, values: Sequence[float], images: int | None = None) -> Interval | None:
    """The 95 % interval of the mean of independent runs; None where one run alone shows no spread.

    >>> mean_interval("validation_error", [0.1])
    """
    if len(values) < 2:
        return None
    in_percent = METRICS[metric].unit is PERCENT
    return error_interval(values, images or _MOST_IMAGES) if in_percent else loss_interval(values)


def error_interval(values: Sequence[float], images: int = _MOST_IMAGES) -> Interval:
    """Of errors that were each counted on so many images.

    >>> [round(end, 3) for end in error_interval([0.05, 0.06, 0.08], images=200)]
    [0.035, 0.114]
    """
    n, middle = len(values), fmean(values)
    inner = (middle * n * images + 0.5) / (n * images + 1)
    if min(values) == max(values):
        reach = _NORMAL * math.sqrt(1 / (n * images * inner * (1 - inner)))
    else:
        spread = math.sqrt((variance(values) + 1 / (12 * images**2)) / n)
        reach = t_quantile(n) * spread / (inner * (1 - inner))
    at = math.log(inner / (1 - inner))
    low, high = _share(at - reach), _share(at + reach)
    return min(low, middle), max(high, middle)


def _share(log_odds: float) -> float:
    odds = math.exp(-abs(log_odds))  # of the lesser, which never overflow
    return odds / (1 + odds) if log_odds < 0 else 1 / (1 + odds)


def loss_interval(values: Sequence[float]) -> Interval:
    """Of figures that are not below 0 and have no upper end.

    >>> [round(end, 2) for end in loss_interval([1.0, 1.1, 1.3])]
    [0.81, 1.58]
    """
    n, middle = len(values), fmean(values)
    if middle <= 0:
        return middle, middle
    reach = t_quantile(n) * math.sqrt(variance(values) / n) / middle
    return middle * math.exp(-reach), middle * math.exp(reach)


def images_behind(errors: Iterable[float | None]) -> int:
    """The fewest images that all these errors can have been counted on.

    >>> images_behind([0.25, 1 / 12, 0.5])
    12
    """
    found = 1
    for error in set(errors):
        if error is not None and math.isfinite(error):
            found = math.lcm(found, Fraction(error).limit_denominator(_MOST_IMAGES).denominator)
            if found >= _MOST_IMAGES:
                return _MOST_IMAGES
    return found
