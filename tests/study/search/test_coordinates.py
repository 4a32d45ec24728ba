"""Points of a search space as coordinates, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import truncnorm

from cbe.spec import Parameter
from cbe.spec.search import walk
from cbe.study.search.coordinates import Places

PLAIN: dict[str, Any] = {
    "rate": {"float": [0.01, 1], "log": True},
    "heads": {"int": [2, 8], "step": 2},
    "share": {"float": [0.1, 0.7], "step": 0.2},
    "target": {"choice": ["soft", "hard", "none"]},
    "agreement": {"float": [0.2, 1.0], "when": {"target": "hard"}},
    "pairs": {"choice": [True, False], "when": {"target": ["hard", "none"]}},
}
HARD = {"rate": 0.1, "heads": 6, "share": 0.7, "target": "hard", "agreement": 0.4, "pairs": False}
SOFT = {"rate": 1, "heads": 2, "share": 0.1, "target": "soft"}


def parsed(plain: dict[str, Any]) -> dict[str, Parameter]:
    return {key: Parameter.model_validate(each) for key, each in plain.items()}


SPACE = parsed(PLAIN)


@pytest.mark.parametrize("point", [HARD, SOFT, {**SOFT, "target": "none", "pairs": True}])
def test_a_point_is_the_same_after_a_way_through_its_coordinates(point: dict[str, Any]) -> None:
    places = Places(SPACE, {})
    found = places.point(places.of(point))
    assert found == pytest.approx(point) and found.keys() == point.keys()


def test_coordinates_run_from_0_to_1_on_the_scale_that_is_searched() -> None:
    places = Places(SPACE, {})
    found = places.of(HARD)
    assert found == pytest.approx([0.5, 0.625, 1, 0, 1, 0, 0.25, 0, 1])
    assert places.groups.tolist() == [0, 1, 2, 3, 3, 3, 4, 5, 5]


def test_what_does_not_exist_at_a_point_is_in_its_middle() -> None:
    assert Places(SPACE, {}).of(SOFT)[-3:].tolist() == [0.5, 0.5, 0.5]


def test_true_is_not_taken_for_1() -> None:
    places = Places(parsed({"x": [1, True, 0]}), {})
    assert [places.of({"x": value}).tolist() for value in (1, True)] == [[1, 0, 0], [0, 1, 0]]
    assert places.point(np.array([0, 1, 0]))["x"] is True


@pytest.mark.parametrize("kind", ["evenly", "by prior", "near"])
def test_drawn_places_are_of_points_of_the_space(kind: str) -> None:
    believed = parsed({key: {**each, "prior": {"at": HARD[key]}} for key, each in PLAIN.items()})
    places, rng = Places(believed, {}), np.random.default_rng(0)
    drawn = {
        "evenly": lambda: places.evenly(80, rng),
        "by prior": lambda: places.by_prior(80, rng),
        "near": lambda: places.near(places.of(SOFT), 80, 0.3, 0.3, rng),
    }[kind]()
    kinds = set()
    for place in drawn:
        point = places.point(place)
        kinds.add(point["target"])
        assert ("agreement" in point) == (point["target"] == "hard")
        assert ("pairs" in point) == (point["target"] != "soft")
        assert all(SPACE[key].contains(value) for key, value in point.items())
        assert ((place >= 0) & (place <= 1)).all()
        # Choices, and what does not exist, have the very coordinates of the point.
        exact = [*range(3, 6), *([] if "agreement" in point else [6]), *range(7, 9)]
        assert (place[exact] == places.of(point)[exact]).all()
    assert kinds == {"soft", "hard", "none"}


def test_what_is_not_searched_decides_what_exists() -> None:
    space = parsed({"ensemble.private_channels": {"int": [1, 16]}})
    for kind, exists in (("channel", True), ("single", False)):
        places = Places(space, {"ensemble.kind": kind, "ensemble.heads": 5})
        assert bool(places.point(np.array([0.5]))) == exists


def test_near_keeps_some_values_and_moves_the_others_a_little() -> None:
    places, rng = (
        Places(parsed({"a": {"float": [0, 1]}, "b": {"float": [0, 1]}}), {}),
        np.random.default_rng(0),
    )
    around = places.near(np.array([0.5, 0.5]), 2000, 0.05, 0.4, rng)
    stayed = around == 0.5
    assert stayed.mean() == pytest.approx(0.4, abs=0.03)
    assert np.std(around[~stayed]) == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("confidence", ["low", "medium", "high"])
def test_the_density_of_the_prior_agrees_with_scipy(confidence: str) -> None:
    believed = {"at": 0.1, "confidence": confidence}
    space = parsed({"x": {"float": [0.01, 1], "log": True, "prior": believed}, "free": {"float": [0, 1]}})
    prior = space["x"].prior
    assert prior is not None
    at, width, share = 0.5, prior.width, prior.share
    where = np.linspace(0, 1, 7)
    wanted = np.log(1 - share + share * truncnorm.pdf(where, -at / width, (1 - at) / width, at, width))
    assert Places(space, {}).log_prior(np.stack([where, where], axis=1)) == pytest.approx(wanted)


def test_the_density_of_a_choice_adds_up_to_that_of_an_even_one() -> None:
    space = parsed({"x": {"choice": ["a", "b", "c"], "prior": {"at": "b", "confidence": "high"}}})
    density = np.exp(Places(space, {}).log_prior(np.eye(3)))
    assert density.mean() == pytest.approx(1) and density[1] > 5 * density[0]


def test_draws_by_the_prior_have_its_density() -> None:
    space = parsed({"x": {"choice": ["a", "b", "c"], "prior": {"at": "b", "confidence": "high"}}})
    places = Places(space, {})
    shares = places.by_prior(5000, np.random.default_rng(0)).mean(axis=0)
    assert shares == pytest.approx(np.exp(places.log_prior(np.eye(3))) / 3, abs=0.02)


def test_every_point_of_a_finite_space_has_a_place_of_its_own() -> None:
    finite = {key: SPACE[key] for key in ("heads", "share", "target", "pairs")}
    points = list(walk(finite, {}, lambda key: finite[key].values()))
    places = {tuple(Places(finite, {}).of(point)) for point in points}
    assert len(places) == len(points) == 4 * 4 * (1 + 2 + 2)
    assert all(math.isfinite(each) for place in places for each in place)
