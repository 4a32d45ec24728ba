"""What every kind of search parameter can do, and what an author believes of one.

Optuna and scipy are imported where they are needed: reading a file must not wait for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    model_serializer,
    model_validator,
)

from cbe.spec import parameters
from cbe.spec.section import Section

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
            forms = " or ".join(kind.form for kind in parameters.KINDS)
            raise ValueError(f"a parameter is exactly one of {forms}")
        return kind.model_validate(value)

    @classmethod
    def kind_of(cls, plain: Any) -> type[Parameter]:
        """The class that reads what a file has; `Parameter` where not exactly one does.

        >>> Parameter.kind_of({"int": [2, 8]}).__name__
        'IntParameter'
        """
        keys = ["choice"] if isinstance(plain, (list, tuple)) else plain if isinstance(plain, dict) else []
        found = [kind for kind in parameters.KINDS if kind.kind in keys]
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
