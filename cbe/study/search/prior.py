"""Values drawn from where the author of a study believes the best to be.

A number is drawn from a normal distribution around `prior.at`, cut off at the ends of its range, on the scale
that is searched; its standard deviation is a share of the range. A choice is `prior.at` with some
probability, and any of the choices otherwise. A parameter without a prior is drawn evenly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import truncnorm

from cbe.spec.search import Parameter

WIDTH = {"low": 0.5, "medium": 0.25, "high": 0.125}  # standard deviation, as a share of the range
SHARE = {"low": 0.25, "medium": 0.5, "high": 0.75}  # of draws that are the believed choice for certain


def draw(parameter: Parameter, rng: np.random.Generator) -> Any:
    """A value by its prior."""
    if parameter.prior is None:
        return draw_evenly(parameter, rng)
    if parameter.choice is not None:
        certain = rng.random() < SHARE[parameter.prior.confidence]
        return parameter.prior.at if certain else draw_evenly(parameter, rng)
    return draw_near(parameter, parameter.prior.at, WIDTH[parameter.prior.confidence], rng)


def draw_evenly(parameter: Parameter, rng: np.random.Generator) -> Any:
    """Any value, each as likely as the others."""
    if parameter.choice is not None:
        return parameter.choice[rng.integers(len(parameter.choice))]
    return from_unit(parameter, rng.random())


def draw_near(parameter: Parameter, value: Any, width: float, rng: np.random.Generator) -> float:
    """A number near another, at a standard deviation of `width` times the range."""
    at = to_unit(parameter, value)
    return from_unit(parameter, truncnorm.rvs(-at / width, (1 - at) / width, at, width, random_state=rng))


def to_unit(parameter: Parameter, value: float) -> float:
    """A number's place in its range, from 0 to 1, on the scale that is searched."""
    low, high = _ends(parameter)
    return ((math.log(value) if parameter.log else value) - low) / (high - low)


def from_unit(parameter: Parameter, place: float) -> float:
    """The number at a place, on a step where there are steps."""
    low, high = _ends(parameter)
    found = low + place * (high - low)
    found = math.exp(found) if parameter.log else found
    found = min(max(found, parameter.low), parameter.high)
    if parameter.int_ is None and parameter.step is None:
        return found
    values = parameter.values()
    number: float = values[round((found - parameter.low) / (parameter.step or 1))]
    return number


def _ends(parameter: Parameter) -> tuple[float, float]:
    half = (
        0.5 * (parameter.step or 1) if parameter.int_ is not None else 0.0
    )  # the ends are as wide as others
    low, high = parameter.low - half, parameter.high + half
    return (math.log(low), math.log(high)) if parameter.log else (low, high)
