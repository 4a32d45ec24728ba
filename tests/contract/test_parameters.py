"""Every kind of search parameter keeps to the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna
import pytest
from pydantic import Field

from cbe.report.page.panel import parameter_axis, placed
from cbe.spec import Parameter, StudyConfig, parameters
from cbe.spec.parameters import ChoiceParameter, Scale
from cbe.spec.search import grid
from cbe.study.search.coordinates import Places
from cbe.study.search.prior_sampler import PriorSampler


class OrderedParameter(ChoiceParameter):
    """A list of choices with an order, as a kind that somebody adds."""

    kind = "ordered"
    form = "{ordered: [values]}"

    choice: tuple[float, ...] = Field(alias="ordered")

    @property
    def scale(self) -> Scale:
        return "linear"


@pytest.fixture(autouse=True)
def _with_one_more_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "KINDS", (*parameters.KINDS, OrderedParameter))


PLAIN: dict[str, dict[str, Any]] = {
    "int": {"int": [2, 8], "prior": {"at": 5}},
    "int with steps": {"int": [2, 8], "step": 3, "prior": {"at": 5, "confidence": "high"}},
    "int on a logarithmic scale": {"int": [1, 64], "log": True, "prior": {"at": 8}},
    "float": {"float": [0.0, 1.0], "prior": {"at": 0.9, "confidence": "low"}},
    "float with steps": {"float": [0.1, 0.7], "step": 0.2, "prior": {"at": 0.3}},
    "float on a logarithmic scale": {"float": [0.1, 10.0], "log": True, "prior": {"at": 1.0}},
    "choice": {"choice": ["soft", "hard", "none"], "prior": {"at": "hard"}},
    "choice of 1 and true": {"choice": [1, True], "when": {"loss.target": ["hard"]}, "prior": {"at": True}},
    "ordered": {"ordered": [0.1, 0.2, 0.9], "prior": {"at": 0.2}},
}
every_kind = pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN)


def drawn(parameter: Parameter) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    for _ in range(50):
        yield parameter.draw(rng)
        yield parameter.draw_evenly(rng)


@every_kind
def test_a_parameter_is_written_as_it_was_read(plain: dict[str, Any]) -> None:
    parameter = Parameter.model_validate(plain)
    assert parameter.model_dump() == {**plain, "prior": {"confidence": "medium", **plain["prior"]}}
    assert Parameter.model_validate(parameter.model_dump()) == parameter
    assert parameter.kind in plain and all(parameter.contains(value) for value in parameter.listed)
    assert parameter.overlaps(parameter) and not parameter.contains("elsewhere")


@every_kind
def test_what_is_drawn_lies_in_the_dimension_and_returns_from_its_place(plain: dict[str, Any]) -> None:
    parameter = Parameter.model_validate(plain)
    found = list(drawn(parameter))
    assert all(parameter.contains(value) and type(value) in (int, float, bool, str) for value in found)
    assert all(0 <= parameter.to_unit(value) <= 1 and parameter.clamp(value) == value for value in found)
    assert [parameter.from_unit(parameter.to_unit(value)) for value in found] == pytest.approx(found)
    if parameter.is_finite:
        values = list(parameter.values())
        assert len(values) == parameter.count and set(map(repr, found)) <= set(map(repr, values))
        assert parameter.count > 9 or len(set(map(repr, found))) == parameter.count


@every_kind
def test_a_prior_draws_values_near_it_more_often(plain: dict[str, Any]) -> None:
    parameter = Parameter.model_validate(plain)
    assert parameter.prior is not None
    at, rng = parameter.to_unit(parameter.prior.at), np.random.default_rng(1)
    near = np.mean([abs(parameter.to_unit(parameter.draw(rng)) - at) for _ in range(300)])
    far = np.mean([abs(parameter.to_unit(parameter.draw_evenly(rng)) - at) for _ in range(300)])
    assert near < far


@every_kind
def test_samplers_suggest_values_of_the_dimension(plain: dict[str, Any]) -> None:
    search = {"x": Parameter.model_validate({**plain, "when": {}})}
    for sampler in (PriorSampler(search, {}, 0, startup=3), optuna.samplers.RandomSampler(seed=0)):
        found = optuna.create_study(sampler=sampler)
        for number in range(6):
            trial = found.ask()
            value = search["x"].suggest(trial, "x")
            assert search["x"].clamp(value) == pytest.approx(value) if value != "hard" else True
            assert trial.distributions["x"] == search["x"].distribution()
            found.tell(trial, number)
    places = Places(search, {})
    for value in drawn(search["x"]):
        assert places.point(places.of({"x": value})) == pytest.approx({"x": value})


@every_kind
def test_an_axis_has_a_place_for_every_value(plain: dict[str, Any]) -> None:
    parameter = Parameter.model_validate(plain)
    axis = parameter_axis("x", parameter)
    for value in drawn(parameter):
        at = placed(parameter, value)
        assert at in axis["categoryarray"] if parameter.scale == "category" else isinstance(at, (int, float))


def test_a_study_searches_a_kind_that_somebody_added() -> None:
    made = StudyConfig.model_validate(
        {"name": "a", "sampler": "grid", "search": {"training.lr": PLAIN["ordered"], "loss.target": ["soft"]}}
    )
    assert [point["training.lr"] for point in grid(made)] == [0.1, 0.2, 0.9]
    assert StudyConfig.model_validate(made.to_plain()) == made
