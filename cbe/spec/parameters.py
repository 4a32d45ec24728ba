"""The kinds of search parameters: one class each, with all that is particular to it.

A new kind is a class here and a place in `KINDS`. Whoever models or shows parameters asks for their `scale`.
Optuna and scipy are imported where they are needed: reading a file must not wait for them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    model_serializer,
    model_validator,
)

from cbe.spec.files import Faults
from cbe.spec.train import Section

if TYPE_CHECKING:
    import numpy as np
    import optuna
    from optuna.distributions import BaseDistribution

Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalar = bool | int | Finite | str
Scale = Literal["linear", "log", "category"]

_WIDTH = {"low": 0.5, "medium": 0.25, "high": 0.125}
_SHARE = {"low": 0.25, "medium": 0.5, "high": 0.75}


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


class Prior(Section):
    """Where the author of a study believes the best value of a parameter to be."""

    at: Scalar  # the value
    confidence: Literal["low", "medium", "high"] = "medium"  # how firmly

    @property
    def width(self) -> float:
        """Standard deviation of a number around `at`, as a share of its range."""
        return _WIDTH[self.confidence]

    @property
    def share(self) -> float:
        """Share of the draws of a choice that are `at` for certain."""
        return _SHARE[self.confidence]


class Parameter(Section):
    """One dimension: a range of whole numbers or of reals, or a list of choices."""

    kind: ClassVar[str]  # the key that lists its values in a file
    form: ClassVar[str]  # how that is written

    # the parameter exists only where other keys have one of these values
    when: dict[str, Annotated[tuple[Scalar, ...], BeforeValidator(_listed)]] = Field({})
    prior: Prior | None = None  # where the best value is believed to be; null: anywhere

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Any:
        if cls is not Parameter or isinstance(value, Parameter):
            return handler(value)
        kind = cls.kind_of(value)
        if kind is Parameter:
            raise ValueError(f"a parameter is exactly one of {FORMS}")
        return kind.model_validate(value)

    @classmethod
    def kind_of(cls, plain: Any) -> type[Parameter]:
        """The class that reads what a file has; `Parameter` where not exactly one does.

        >>> Parameter.kind_of({"int": [2, 8]}).__name__
        'IntParameter'
        """
        keys = ["choice"] if isinstance(plain, (list, tuple)) else plain if isinstance(plain, dict) else []
        found = [kind for kind in KINDS if kind.kind in keys]
        return found[0] if len(found) == 1 else Parameter

    @model_serializer
    def _to_plain(self) -> dict[str, Any]:
        plain = {self.kind: list(self.listed), **self._options()}
        plain |= {"when": {key: list(values) for key, values in self.when.items()}} if self.when else {}
        return plain | ({"prior": self.prior.model_dump()} if self.prior else {})

    def _options(self) -> dict[str, Any]:
        """What a file has beside the values, where it is not the default."""
        return {}

    @property
    @abstractmethod
    def scale(self) -> Scale:
        """How values lie on an axis; those of `category` have no order."""

    @property
    @abstractmethod
    def listed(self) -> tuple[Any, ...]:
        """What a file lists, in order: the lowest and the highest number, or all choices."""

    @abstractmethod
    def fitted(self, key: str, listed: tuple[Any, ...]) -> Self:
        """The parameter with its listed values as their key reads them; Faults where they do not fit it."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many values there are; ValueError where there is no end of them."""

    @abstractmethod
    def values(self) -> Iterator[Any]:
        """All values, in order; ValueError where there is no end of them."""

    @property
    def is_finite(self) -> bool:
        try:
            return self.count > 0
        except ValueError:
            return False

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Whether the value lies in the dimension, on a step where there are steps."""

    @abstractmethod
    def overlaps(self, other: Parameter) -> bool:
        """Whether a value can lie in both."""

    @abstractmethod
    def clamp(self, value: Any) -> Any:
        """The nearest value of the dimension."""

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """A value's place from 0 to 1, on the scale that is searched."""

    @abstractmethod
    def from_unit(self, place: float) -> Any:
        """The value at a place."""

    def draw(self, rng: np.random.Generator) -> Any:
        """A value by the prior, or evenly where there is none."""
        return self.draw_near(self.prior, rng) if self.prior else self.draw_evenly(rng)

    @abstractmethod
    def draw_near(self, prior: Prior, rng: np.random.Generator) -> Any:
        """A value by a prior."""

    @abstractmethod
    def draw_evenly(self, rng: np.random.Generator) -> Any:
        """Any value, each as likely as the others."""

    @abstractmethod
    def distribution(self) -> BaseDistribution:
        """The dimension as Optuna has it."""

    @abstractmethod
    def suggest(self, trial: optuna.Trial, key: str) -> Any:
        """A value that Optuna suggests."""


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


class ChoiceParameter(Parameter):
    """Any of the listed values."""

    kind = "choice"
    form = "a list of choices"

    choice: tuple[Scalar, ...]  # the values; a bare list means the same

    @model_validator(mode="before")
    @classmethod
    def _only_choices(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return {"choice": value}
        if isinstance(value, dict) and not value.keys().isdisjoint(("log", "step")):
            raise ValueError("log and step belong to int and float, not to choices")
        return value

    @model_validator(mode="after")
    def _has_choices(self) -> Self:
        if not self.choice:
            raise ValueError("no choice is given; give at least one")
        return self

    def __str__(self) -> str:
        return ", ".join(map(str, self.choice))

    @property
    def scale(self) -> Scale:
        return "category"

    @property
    def listed(self) -> tuple[Any, ...]:
        return self.choice

    def fitted(self, key: str, listed: tuple[Any, ...]) -> Self:
        if len(set(map(repr, listed))) < len(listed):
            raise Faults([((), "a choice is given twice", "take one out")])
        return self.model_copy(update={"choice": listed})

    @property
    def count(self) -> int:
        return len(self.choice)

    def values(self) -> Iterator[Any]:
        return iter(self.choice)

    def contains(self, value: Any) -> bool:
        return _typed(value) in map(_typed, self.choice)

    def overlaps(self, other: Parameter) -> bool:
        return any(other.contains(value) for value in self.choice)

    def clamp(self, value: Any) -> Any:
        return value  # none is nearer than another

    def to_unit(self, value: Any) -> float:
        return (list(map(_typed, self.choice)).index(_typed(value)) + 0.5) / self.count

    def from_unit(self, place: float) -> Any:
        return self.choice[min(int(place * self.count), self.count - 1)]

    def draw_near(self, prior: Prior, rng: np.random.Generator) -> Any:
        """`at` with some probability, and any of the choices otherwise."""
        return prior.at if rng.random() < prior.share else self.draw_evenly(rng)

    def draw_evenly(self, rng: np.random.Generator) -> Any:
        return self.choice[rng.integers(self.count)]

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.choice)

    def suggest(self, trial: optuna.Trial, key: str) -> Any:
        return trial.suggest_categorical(key, self.choice)


KINDS: tuple[type[Parameter], ...] = (IntParameter, FloatParameter, ChoiceParameter)
FORMS = " or ".join(kind.form for kind in KINDS)


def _exact(number: float) -> Decimal:
    """A number as it is written: 0.1 + 2 · 0.1 is 0.3."""
    return Decimal(str(number))


def _typed(value: Any) -> tuple[bool, Any]:
    """Python has True equal to 1."""
    return type(value) is bool, value
