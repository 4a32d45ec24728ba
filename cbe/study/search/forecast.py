"""How trials would end, forecast from a rung by those that went on from there.

A line through the values at the rung and at the end, fitted by Bayesian regression. Before trials have shown
how much a rung says, beliefs are broad, so that few trials are given up. Where a rung says little they stay
broad: on digits half of the steps explain most of the end, on Fashion-MNIST much less (`python -m
benchmarks.landscape signal`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

Array = np.ndarray[Any, Any]

# What is believed before, on the scale of `scores`: the logarithm of an error.
SLOPE, SLOPE_DEVIATION = 0.8, 0.3
SPREAD, SPREAD_TRIALS = 0.3, 4  # of an end around its forecast, as firmly as so many trials would say it
MIN_ENDS = 2  # trials that have ended, before anything is forecast


def scores(values: Array) -> Array:
    """Values on a scale on which the best ones are apart: their logarithms, where all are above 0.

    What went wrong is as bad as the worst.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return np.zeros(len(values))
    found = np.minimum(values, known.max())
    if known.min() < 0 or not known.max():
        return np.asarray(found)
    least = 0.05 * (np.median(known) or known.max())  # 0 where the values are too small for a number
    return np.asarray(np.log(found + least) if least else found)


def chances_to_lead(at_rung: Array, passed: Array, ends: Array) -> Array:
    """How probable it is that each of the trials at a rung ends ahead of all others; lower values are better.

    A worse value never has the better chance, and what is no number has none.
    `passed` are the values that other trials had at the rung, and `ends` those with which they ended.

    >>> at_rung, passed, ends = np.array([0.1, 0.5]), np.array([0.2, 0.3, 0.4]), np.array([0.1, 0.15, 0.2])
    >>> chances_to_lead(at_rung, passed, ends).round(2).tolist()
    [0.5, 0.0]
    """
    if not len(at_rung) or len(ends) < MIN_ENDS:
        return np.zeros(len(at_rung))
    known = np.concatenate([at_rung, passed, ends])
    known = np.where(np.isfinite(known), known, np.inf)
    scored = scores(known)
    unit = 1.0 if known.min() >= 0 else scored.std() or 1.0
    here, before, after = np.split(scored / unit, [len(at_rung), len(at_rung) + len(passed)])
    count, middle = len(ends), before.mean()
    away, gone = before - middle, after - after.mean()
    firmness = (SPREAD / SLOPE_DEVIATION) ** 2
    slope = max(0.0, (SLOPE * firmness + away @ gone) / (firmness + away @ away))
    variance = SPREAD_TRIALS * SPREAD**2 + ((gone - slope * away) ** 2).sum()
    variance /= SPREAD_TRIALS + count
    expected = after.mean() + slope * (here - middle)
    of_slope = variance / (variance / SLOPE_DEVIATION**2 + away @ away)
    deviation = np.sqrt(variance * (1 + 1 / count) + of_slope * (here - middle) ** 2)
    lead = min(after.min(), expected.min())
    chances = np.where(np.isfinite(known[: len(here)]), ndtr((lead - expected) / deviation), 0.0)
    order = np.argsort(known[: len(here)])
    # Far from the others a forecast is uncertain, also on the bad side; but no line falls.
    chances[order] = np.minimum.accumulate(chances[order])
    return np.asarray(chances)
