"""Parameters that are one of several listed values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from cbe.spec.faults import Faults
from cbe.spec.parameters.parameter import Parameter, Prior, Scalar, Scale

if TYPE_CHECKING:
    import numpy as np
    import optuna
    from optuna.distributions import BaseDistribution


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


def _typed(value: Any) -> tuple[bool, Any]:
    """Python has True equal to 1."""
    return type(value) is bool, value
