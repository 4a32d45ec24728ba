"""Points of a search space as coordinates: what a model of the space computes with.

A number is one coordinate from 0 to 1 on the scale that is searched, a choice one coordinate for each of its
values. Coordinates of a parameter that does not exist at a point are those of its middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cbe.spec.search import Parameter, applicable, deciding, order
from cbe.study.search import prior

Array = np.ndarray[Any, Any]


class Places:
    """Coordinates of points, and draws of many of them at once."""

    def __init__(self, search: Mapping[str, Parameter], base: Mapping[str, Any]) -> None:
        """`base` has the values of what is not searched, which may decide what exists."""
        self._search, self._base = search, dict(base)
        self._columns: dict[str, slice] = {}
        groups: list[int] = []
        for number, (key, parameter) in enumerate(search.items()):
            size = 1 if parameter.choice is None else len(parameter.choice)
            self._columns[key] = slice(len(groups), len(groups) + size)
            groups += [number] * size
        self.groups = np.array(groups, dtype=int)  # the parameter of each coordinate
        self._order = order(search)
        self._conditional = [
            key for key in self._order if not search.keys().isdisjoint(deciding(key, search[key]))
        ]
        needed = {each for key in self._conditional for each in deciding(key, search[key])}
        self._deciding = [key for key in search if key in needed]

    def of(self, point: Mapping[str, Any]) -> Array:
        """The coordinates of a point, which may lack parameters."""
        found = np.empty(len(self.groups))
        for key, parameter in self._search.items():
            columns = self._columns[key]
            if key not in point:
                found[columns] = _middle(parameter)
            elif parameter.choice is None:
                found[columns] = prior.to_unit(parameter, point[key])
            else:
                found[columns] = [_same(choice, point[key]) for choice in parameter.choice]
        return found

    def point(self, place: Array) -> dict[str, Any]:
        """The values of the parameters that exist at a place."""
        found: dict[str, Any] = {}
        for key in self._order:
            if applicable(key, self._search[key], {**self._base, **found}):
                found[key] = self._value(key, place)
        return found

    def evenly(self, count: int, rng: np.random.Generator) -> Array:
        return self._existing(self._drawn(count, rng, centers={}, widths={}, shares={}))

    def by_prior(self, count: int, rng: np.random.Generator) -> Array:
        believed = {key: p.prior for key, p in self._search.items() if p.prior}
        drawn = self._drawn(
            count,
            rng,
            centers={key: self._center(key, each.at) for key, each in believed.items()},
            widths={key: prior.WIDTH[each.confidence] for key, each in believed.items()},
            shares={key: prior.SHARE[each.confidence] for key, each in believed.items()},
        )
        return self._existing(drawn)

    def near(self, place: Array, count: int, width: float, keep: float, rng: np.random.Generator) -> Array:
        """Places around another; each of their parameters stays as it is with probability `keep`."""
        centers = {key: place[columns] for key, columns in self._columns.items()}
        drawn = self._drawn(
            count, rng, centers, dict.fromkeys(self._search, width), dict.fromkeys(self._search, 0.0)
        )
        known = self.point(place)
        stays = rng.random((count, len(self._search))) < [keep * (key in known) for key in self._search]
        return self._existing(np.where(stays[:, self.groups], place, drawn))

    def log_prior(self, places: Array) -> Array:
        """Logarithm of the prior's density at places, an even one being 0.

        A share of the density is even, so that no place is out of the question.
        """
        found = np.zeros(len(places))
        for key, parameter in self._search.items():
            if parameter.prior is None:
                continue
            center, share = self._center(key, parameter.prior.at), prior.SHARE[parameter.prior.confidence]
            if parameter.choice is not None:
                believed = len(parameter.choice) * (places[:, self._columns[key]] @ center)
            else:
                width, at = prior.WIDTH[parameter.prior.confidence], float(center[0])
                reach = width * math.sqrt(2)
                inside = (math.erf((1 - at) / reach) + math.erf(at / reach)) / 2
                away = (places[:, self._columns[key].start] - at) / width
                believed = np.exp(-(away**2) / 2) / (width * math.sqrt(2 * math.pi) * inside)
            found += np.log(1 - share + share * believed)
        return found

    def _drawn(
        self,
        count: int,
        rng: np.random.Generator,
        centers: Mapping[str, Array],
        widths: Mapping[str, float],
        shares: Mapping[str, float],
    ) -> Array:
        found = np.zeros((count, len(self.groups)))
        for key, parameter in self._search.items():
            columns = self._columns[key]
            if parameter.choice is not None:
                chosen = rng.integers(len(parameter.choice), size=count)
                found[np.arange(count), columns.start + chosen] = 1
                certain = rng.random(count) < shares.get(key, 0.0)
                found[certain, columns] = centers.get(key, 0.0)
            elif key in centers:
                drawn = centers[key][0] + widths[key] * rng.standard_normal(count)
                inside = (drawn >= 0) & (drawn <= 1)
                found[:, columns.start] = np.where(inside, drawn, rng.random(count))
            else:
                found[:, columns.start] = rng.random(count)
        return found

    def _existing(self, places: Array) -> Array:
        """Puts what does not exist at a place to its middle."""
        for place in places if self._conditional else ():
            point = {key: self._value(key, place) for key in self._deciding}
            for key in self._conditional:
                if not applicable(key, self._search[key], {**self._base, **point}):
                    place[self._columns[key]] = _middle(self._search[key])
                    point.pop(key, None)
        return places

    def _center(self, key: str, value: Any) -> Array:
        return self.of({key: value})[self._columns[key]]

    def _value(self, key: str, place: Array) -> Any:
        parameter, own = self._search[key], place[self._columns[key]]
        if parameter.choice is not None:
            return parameter.choice[int(own.argmax())]
        return prior.from_unit(parameter, float(own[0]))


def _middle(parameter: Parameter) -> float:
    return 0.5 if parameter.choice is None else 1 / len(parameter.choice)


def _same(choice: Any, value: Any) -> bool:
    """Python has True equal to 1."""
    return (type(choice) is bool, choice) == (type(value) is bool, value)
