"""The configs that no other beats in every objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from cbe.configs import Config, is_finite
from cbe.spec import Objective
from cbe.spec.terms import Preset

Costs = tuple[float, ...]  # of each objective, less is better


@dataclass(frozen=True)
class FrontPoint:
    config_id: str
    name: str  # for a person
    preset: Preset | None
    trials: tuple[str, ...]
    values: dict[str, float]  # mean over the search's runs, by metric


def front(
    configs: Iterable[Config], objectives: Sequence[Objective], names: Mapping[str, str]
) -> tuple[FrontPoint, ...]:
    """The Pareto front of what the search trained to the end, the best in the first objective first."""
    points = [point for config in configs if (point := _point(config, objectives, names))]
    kept: list[tuple[Costs, FrontPoint]] = []
    # In the order of costs nothing is beaten by what comes later, nor by what was itself beaten.
    for cost, point in sorted(
        ((_costs(each, objectives), each) for each in points), key=lambda pair: pair[0]
    ):
        if not any(other != cost and _no_worse(other, cost) for other, _ in kept):
            kept.append((cost, point))
    return tuple(point for _, point in kept)


def _point(config: Config, objectives: Sequence[Objective], names: Mapping[str, str]) -> FrontPoint | None:
    rows = [row for row in config.completed("search") if row["values"] and all(map(is_finite, row["values"]))]
    if not rows:
        return None
    means = [mean(values) for values in zip(*(row["values"] for row in rows), strict=True)]
    values: dict[str, float] = {o.metric: value for o, value in zip(objectives, means, strict=True)}
    name = names[config.config_id]
    return FrontPoint(config.config_id, name, config.preset, tuple(row["trial"] for row in rows), values)


def _costs(point: FrontPoint, objectives: Sequence[Objective]) -> Costs:
    return tuple(point.values[o.metric] * (1 if o.direction == "minimize" else -1) for o in objectives)


def _no_worse(costs: Costs, than: Costs) -> bool:
    return all(cost <= other for cost, other in zip(costs, than, strict=True))
