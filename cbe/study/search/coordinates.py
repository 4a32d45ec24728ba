"""Points of a search space as coordinates: what a model of the space computes with.

A number is one coordinate from 0 to 1 on the scale that is searched, a choice one coordinate for each of its
values. Coordinates of a parameter that does not exist at a point are those of its middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cbe.spec import Parameter
from cbe.spec.search import applicable, deciding, order

Array = np.ndarray[Any, Any]


class Around(NamedTuple):
    """Where values are drawn near."""

    center: Array  # its coordinates
    width: float  # standard deviation of a number
    share: float  # of a choice's draws are the center's for certain


class _Number:
    """A number: one coordinate."""

    size, middle = 1, 0.5

    def __init__(self, parameter: Parameter) -> None:
        self._parameter = parameter

    def of(self, value: Any) -> list[float]:
        return [self._parameter.to_unit(value)]

    def value(self, own: Array) -> Any:
        return self._parameter.from_unit(float(own[0]))

    def drawn(self, count: int, rng: np.random.Generator, around: Around | None) -> Array:
        if around is None:
            return rng.random((count, 1))
        drawn = around.center + around.width * rng.standard_normal((count, 1))
        return np.where((drawn >= 0) & (drawn <= 1), drawn, rng.random((count, 1)))

    def density(self, own: Array, around: Around) -> Array:
        """The density around a center, an even one being 1."""
        at, width = float(around.center[0]), around.width
        reach = width * math.sqrt(2)
        inside = (math.erf((1 - at) / reach) + math.erf(at / reach)) / 2
        away = (own[:, 0] - at) / width
        return np.asarray(np.exp(-(away**2) / 2) / (width * math.sqrt(2 * math.pi) * inside))


class _Category:
    """A choice: one coordinate for each of its values."""

    def __init__(self, parameter: Parameter) -> None:
        self._parameter = parameter
        self.size = parameter.count
        self.middle = 1 / self.size

    def of(self, value: Any) -> list[float]:
        chosen = int(self._parameter.to_unit(value) * self.size)
        return [float(number == chosen) for number in range(self.size)]

    def value(self, own: Array) -> Any:
        return self._parameter.from_unit((int(own.argmax()) + 0.5) / self.size)

    def drawn(self, count: int, rng: np.random.Generator, around: Around | None) -> Array:
        found = np.eye(self.size)[rng.integers(self.size, size=count)]
        certain = rng.random(count)
        if around is not None:
            found[certain < around.share] = around.center
        return found

    def density(self, own: Array, around: Around) -> Array:
        """The density around a center, an even one being 1."""
        return np.asarray(self.size * (own @ around.center))


class Places:
    """Coordinates of points, and draws of many of them at once."""

    def __init__(self, search: Mapping[str, Parameter], base: Mapping[str, Any]) -> None:
        """`base` has the values of what is not searched, which may decide what exists."""
        self._search, self._base = search, dict(base)
        self._axes: dict[str, _Number | _Category] = {}
        self._columns: dict[str, slice] = {}
        groups: list[int] = []
        for number, (key, parameter) in enumerate(search.items()):
            axis = _Category(parameter) if parameter.scale == "category" else _Number(parameter)
            self._axes[key], self._columns[key] = axis, slice(len(groups), len(groups) + axis.size)
            groups += [number] * axis.size
        self.groups = np.array(groups, dtype=int)  # the parameter of each coordinate
        self._priors = {
            key: Around(np.array(self._axes[key].of(p.prior.at)), p.prior.width, p.prior.share)
            for key, p in search.items()
            if p.prior
        }
        self._order = order(search)
        self._conditional = [
            key for key in self._order if not search.keys().isdisjoint(deciding(key, search[key]))
        ]
        needed = {each for key in self._conditional for each in deciding(key, search[key])}
        self._deciding = [key for key in search if key in needed]

    def of(self, point: Mapping[str, Any]) -> Array:
        """The coordinates of a point, which may lack parameters."""
        found = np.empty(len(self.groups))
        for key, axis in self._axes.items():
            found[self._columns[key]] = axis.of(point[key]) if key in point else axis.middle
        return found

    def point(self, place: Array) -> dict[str, Any]:
        """The values of the parameters that exist at a place."""
        found: dict[str, Any] = {}
        for key in self._order:
            if applicable(key, self._search[key], {**self._base, **found}):
                found[key] = self._value(key, place)
        return found

    def evenly(self, count: int, rng: np.random.Generator) -> Array:
        return self._existing(self._drawn(count, rng, {}))

    def by_prior(self, count: int, rng: np.random.Generator) -> Array:
        return self._existing(self._drawn(count, rng, self._priors))

    def near(self, place: Array, count: int, width: float, keep: float, rng: np.random.Generator) -> Array:
        """Places around another; each of their parameters stays as it is with probability `keep`."""
        around = {key: Around(place[columns], width, 0.0) for key, columns in self._columns.items()}
        drawn = self._drawn(count, rng, around)
        known = self.point(place)
        stays = rng.random((count, len(self._search))) < [keep * (key in known) for key in self._search]
        return self._existing(np.where(stays[:, self.groups], place, drawn))

    def log_prior(self, places: Array) -> Array:
        """Logarithm of the prior's density at places, an even one being 0.

        A share of the density is even, so that no place is out of the question.
        """
        found = np.zeros(len(places))
        for key, prior in self._priors.items():
            believed = self._axes[key].density(places[:, self._columns[key]], prior)
            found += np.log(1 - prior.share + prior.share * believed)
        return found

    def _drawn(self, count: int, rng: np.random.Generator, around: Mapping[str, Around]) -> Array:
        found = np.zeros((count, len(self.groups)))
        for key, axis in self._axes.items():
            found[:, self._columns[key]] = axis.drawn(count, rng, around.get(key))
        return found

    def _existing(self, places: Array) -> Array:
        """Puts what does not exist at a place to its middle."""
        for place in places if self._conditional else ():
            point = {key: self._value(key, place) for key in self._deciding}
            for key in self._conditional:
                if not applicable(key, self._search[key], {**self._base, **point}):
                    place[self._columns[key]] = self._axes[key].middle
                    point.pop(key, None)
        return places

    def _value(self, key: str, place: Array) -> Any:
        return self._axes[key].value(place[self._columns[key]])
