"""Parameters that are numbers, from the lowest to the highest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from cbe.spec.faults import Faults
from cbe.spec.parameters.parameter import Finite, Parameter, Prior, Scale

if TYPE_CHECKING:
    import numpy as np
    import optuna
    from optuna.distributions import BaseDistribution


class Range(Parameter):
    """Numbers from the lowest to the highest."""

    bounds: tuple[float, float]
    log: bool = False  # search on a logarithmic scale
    step: float | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, not {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs a low above 0, not {self.low}")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other; leave one out")
        if self.step is not None:
            low, high, step = (_exact(number) for number in (self.low, self.high, self.step))
            if (high - low) % step:
                last = low + (high - low) // step * step
                raise ValueError(f"steps of {step} from {low} do not reach {high}; the last one is {last}")
        return self

    def _options(self) -> dict[str, Any]:
        return ({} if self.step is None else {"step": self.step}) | ({"log": True} if self.log else {})

    def __str__(self) -> str:
        """As a person would say it.

        >>> str(Parameter.model_validate({"int": [2, 8], "step": 2}))
        '2 to 8 in steps of 2'
        """
        return f"{self.low:g} to {self.high:g}" + (f" in steps of {self.step:g}" if self.step else "")

    @property
    def low(self) -> float:
        return self.bounds[0]

    @property
    def high(self) -> float:
        return self.bounds[1]

    @property
    def spacing(self) -> float | None:
        """The distance between values; None where there is always one between two others."""
        return self.step

    @property
    def scale(self) -> Scale:
        return "log" if self.log else "linear"

    @property
    def listed(self) -> tuple[Any, ...]:
        return self.bounds

    def fitted(self, key: str, listed: tuple[Any, ...]) -> Self:
        return self

    @property
    def count(self) -> int:
        if self.spacing is None:
            raise ValueError(
                "a float without step has infinitely many values; give a step, or a list of choices"
            )
        return int((_exact(self.high) - _exact(self.low)) / _exact(self.spacing)) + 1

    def values(self) -> Iterator[Any]:
        return map(self._nth, range(self.count))

    def _nth(self, n: int) -> float:
        return float(_exact(self.low) + n * _exact(self.spacing or 0))

    def contains(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if not self.low <= value <= self.high:
            return False
        return self.spacing is None or (_exact(value) - _exact(self.low)) % _exact(self.spacing) == 0

    def overlaps(self, other: Parameter) -> bool:
        if isinstance(other, Range):
            return self.low <= other.high and other.low <= self.high
        return other.overlaps(self)

    def clamp(self, value: Any) -> float:
        number = float(min(max(value, self.low), self.high))
        return number if self.spacing is None else self._nth(round((number - self.low) / self.spacing))

    def to_unit(self, value: Any) -> float:
        low, high = self._ends()
        return ((math.log(value) if self.log else value) - low) / (high - low)

    def from_unit(self, place: float) -> float:
        low, high = self._ends()
        found = low + place * (high - low)
        return self.clamp(math.exp(found) if self.log else found)

    def _ends(self) -> tuple[float, float]:
        """The two ends of the unit, on the scale that is searched."""
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def draw_near(self, prior: Prior, rng: np.random.Generator) -> float:
        """A draw from the normal distribution around `at`, cut off at the ends of the range."""
        from scipy.stats import truncnorm

        at, width = self.to_unit(prior.at), prior.width
        return self.from_unit(truncnorm.rvs(-at / width, (1 - at) / width, at, width, random_state=rng))

    def draw_evenly(self, rng: np.random.Generator) -> float:
        return self.from_unit(rng.random())


class IntParameter(Range):
    """Whole numbers from the lowest to the highest."""

    kind = "int"
    form = "{int: [low, high]}"

    bounds: tuple[int, int] = Field(alias="int")  # lowest and highest whole number
    step: Annotated[int, Field(gt=0)] | None = None  # distance between values, from low to high

    @property
    def spacing(self) -> int:
        return self.step or 1

    def _nth(self, n: int) -> int:
        return self.bounds[0] + n * self.spacing

    def _ends(self) -> tuple[float, float]:
        half = 0.5 * self.spacing  # the lowest and the highest take as much of the unit as others
        low, high = self.low - half, self.high + half
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import IntDistribution

        return IntDistribution(*self.bounds, log=self.log, step=self.spacing)

    def suggest(self, trial: optuna.Trial, key: str) -> int:
        return trial.suggest_int(key, *self.bounds, step=self.spacing, log=self.log)


class FloatParameter(Range):
    """Real numbers from the lowest to the highest."""

    kind = "float"
    form = "{float: [low, high]}"

    bounds: tuple[Finite, Finite] = Field(alias="float")  # lowest and highest real number
    # distance between values, from low to high
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def fitted(self, key: str, listed: tuple[Any, ...]) -> Self:
        found = [
            ((at,), f"{self.bounds[at]!r}: {key} is a whole number", "write int instead of float")
            for at, value in enumerate(listed)
            if isinstance(value, int)
        ]
        if found:
            raise Faults(found)
        return self

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution

        return FloatDistribution(*self.bounds, log=self.log, step=self.step)

    def suggest(self, trial: optuna.Trial, key: str) -> float:
        return trial.suggest_float(key, *self.bounds, step=self.step, log=self.log)


def _exact(number: float) -> Decimal:
    """A number as it is written: 0.1 + 2 · 0.1 is 0.3."""
    return Decimal(str(number))
