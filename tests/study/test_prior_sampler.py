"""The sampler that starts from priors: it stays in the space, uses a right prior and drops a wrong one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from cbe.spec.search import Parameter
from cbe.store.history import distribution
from cbe.study import prior
from cbe.study.prior_sampler import SOURCE, PriorSampler, ranked, tpe
from cbe.study.sampling import Sampling, open_storage
from tests.study.conftest import study

Space = dict[str, Parameter]
BEST = {"a": 0.8, "b": 0.7, "c": 0.6, "d": 0.5, "heads": 6, "kind": "soft"}
OPPOSITE = {"a": 0.05, "b": 0.05, "c": 0.95, "d": 0.95, "heads": 1, "kind": "hard"}


def space(believed: Mapping[str, Any] | None = None, confidence: str = "medium") -> Space:
    plain: dict[str, Any] = {key: {"float": [0, 1]} for key in "abcd"}
    plain |= {"heads": {"int": [1, 8]}, "kind": {"choice": ["soft", "hard", "none"]}}
    for key, at in (believed or {}).items():
        plain[key]["prior"] = {"at": at, "confidence": confidence}
    return {key: Parameter.model_validate(each) for key, each in plain.items()}


def loss(point: Mapping[str, Any]) -> float:
    numbers = sum((point[key] - BEST[key]) ** 2 for key in "abcd")
    return numbers + ((point["heads"] - 6) / 7) ** 2 + 0.1 * (point["kind"] != "soft")


def suggest(trial: optuna.Trial, search: Space) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for key, parameter in search.items():
        if all(point.get(other) in values for other, values in parameter.when.items()):
            point[key] = trial._suggest(key, distribution(parameter))
    return point


def searched(sampler: BaseSampler, search: Space, trials: int = 60) -> optuna.Study:
    found = optuna.create_study(sampler=sampler)
    for _ in range(trials):
        trial = found.ask()
        found.tell(trial, loss(suggest(trial, search)))
    return found


def sources(found: optuna.Study) -> list[str]:
    return [trial.system_attrs[SOURCE] for trial in found.trials]


@cache
def runs(name: str) -> list[optuna.Study]:
    make: dict[str, Callable[[int], BaseSampler]] = {
        "tpe": lambda seed: tpe(seed, 10),
        "none": lambda seed: PriorSampler(space(), seed),
        "right": lambda seed: PriorSampler(space(BEST), seed),
        "wrong": lambda seed: PriorSampler(space(OPPOSITE), seed),
        "surely wrong": lambda seed: PriorSampler(space(OPPOSITE, "high"), seed),
    }
    return [searched(make[name](seed), space()) for seed in range(11)]


def median_best(name: str) -> np.ndarray[Any, Any]:
    curves = [np.minimum.accumulate([trial.value for trial in found.trials]) for found in runs(name)]
    return np.median(curves, axis=0)


numbers = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(lambda ends: [ends[0], ends[0] + ends[1]])
parameters = st.one_of(
    st.builds(lambda ends, log: {"int": ends, "log": log}, numbers, st.booleans()),
    st.builds(
        lambda ends, step: {"int": [ends[0], ends[0] + 4 * step], "step": step}, numbers, st.integers(1, 5)
    ),
    st.builds(lambda ends, log: {"float": ends, "log": log}, numbers, st.booleans()),
    st.builds(lambda low: {"float": [low, low + 1.5], "step": 0.3}, st.integers(-3, 3)),
    st.sampled_from([{"choice": [True, False]}, {"choice": ["x", "y", "z"]}, {"choice": [0.1, 4]}]),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(parameters, min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_suggestions_lie_in_any_space(plain: list[dict[str, Any]], random: Any, believes: bool) -> None:
    search: Space = {}
    for number, each in enumerate(plain):
        at = prior.draw_evenly(Parameter.model_validate(each), np.random.default_rng(random.randrange(99)))
        belief = {"prior": {"at": at}} if believes else {}
        search[f"p{number}"] = Parameter.model_validate({**each, **belief})
    found = optuna.create_study(sampler=PriorSampler(search, 0, startup=4))
    for number in range(14):
        trial = found.ask()
        point = suggest(trial, search)
        assert all(search[key].contains(value) for key, value in point.items())
        assert point == found.trials[-1].params
        found.tell(trial, random.random() if number % 5 else None, None if number % 5 else TrialState.FAIL)


def test_conditional_parameters_are_suggested_only_where_they_exist(tmp_path: Path) -> None:
    search = {
        "loss.target": {"choice": ["soft", "hard"], "prior": {"at": "hard"}},
        "loss.agreement": {"float": [0.2, 1.0], "when": {"loss.target": "hard"}, "prior": {"at": 0.8}},
        "loss.weights.lb": {"float": [0.1, 3], "log": True},
    }
    config = study(search=search, sampler="prior", budget={"trials": 30})
    sampling = Sampling(config, open_storage(None, tmp_path / "optuna.journal"), {})
    kinds = set()
    for number in range(30):
        asked = sampling.ask(f"t{number:04d}", (0, 0))
        assert asked.number is not None
        kinds.add(asked.point["loss.target"])
        assert ("loss.agreement" in asked.point) == (asked.point["loss.target"] == "hard")
        sampling.tell(asked.number, "completed", [asked.point["loss.weights.lb"]])
    assert kinds == {"soft", "hard"}


def test_the_first_trials_gather_around_the_prior() -> None:
    found = searched(PriorSampler(space(BEST, "high"), 0, startup=60), space())
    by_prior = [trial.params for trial in found.trials if trial.system_attrs[SOURCE] == "prior"]
    assert 30 <= len(by_prior) <= 50 and set(sources(found)) == {"prior", "even"}
    for key in "abcd":
        assert abs(statistics.mean(point[key] for point in by_prior) - BEST[key]) < 0.1
    assert sum(point["kind"] == "soft" for point in by_prior) > 0.7 * len(by_prior)


def test_without_priors_the_search_starts_evenly_and_keeps_up_with_plain_tpe() -> None:
    assert all(sources(found)[:10] == ["even"] * 10 for found in runs("none"))
    assert not any("prior" in sources(found) for found in runs("none"))
    assert median_best("none")[59] <= median_best("tpe")[45]  # 60 trials are 1.3 times 46


def test_the_share_of_a_wrong_prior_falls_to_almost_nothing() -> None:
    for name in ("wrong", "surely wrong"):
        shares = [[source == "prior" for source in sources(found)] for found in runs(name)]
        early, late = (np.mean([share[part] for share in shares]) for part in (slice(10), slice(30, None)))
        assert early > 0.5 and late < 0.02


def test_a_right_prior_is_ahead_of_plain_tpe_after_the_first_trials() -> None:
    assert median_best("right")[14] <= median_best("tpe")[19]


@pytest.mark.parametrize("name", ["wrong", "surely wrong"])
def test_a_wrong_prior_costs_at_most_a_third_more_trials_than_plain_tpe(name: str) -> None:
    goal = median_best("tpe")[45]
    assert median_best(name)[59] <= goal  # 60 trials are 1.3 times 46


def test_the_same_seed_suggests_the_same_points() -> None:
    one, other, different = (searched(PriorSampler(space(BEST), seed), space(), 25) for seed in (3, 3, 4))
    points = [[trial.params for trial in found.trials] for found in (one, other, different)]
    assert points[0] == points[1] != points[2] and sources(one) == sources(other)


def test_trials_that_were_ended_early_count_with_their_last_value() -> None:
    found = optuna.create_study(direction="maximize", sampler=PriorSampler(space(), 0))
    for number, (curve, state) in enumerate(
        [
            ({10: 0.5, 20: 0.7}, TrialState.PRUNED),
            ({}, TrialState.PRUNED),
            ({10: 0.9}, TrialState.FAIL),
            ({10: float("nan")}, TrialState.PRUNED),
            ({10: 0.1}, TrialState.COMPLETE),
        ]
    ):
        trial = found.ask()
        suggest(trial, space())
        for step, value in curve.items():
            trial.report(value, step)
        found.tell(trial, 0.6 if state == TrialState.COMPLETE else None, state)
        assert trial.number == number
    assert [trial.number for trial in ranked(found)] == [0, 4]


def test_several_objectives_are_left_to_the_model_once_it_knows_enough() -> None:
    found = optuna.create_study(directions=["minimize"] * 2, sampler=PriorSampler(space(BEST), 0))
    for _ in range(16):
        trial = found.ask()
        point = suggest(trial, space())
        found.tell(trial, [loss(point), point["heads"]])
    assert set(sources(found)[:10]) == {"prior", "even"} and set(sources(found)[10:]) == {"model"}


@pytest.mark.parametrize("error_class", ["NonFiniteLoss", "OutOfMemory", "DataError"])
def test_configs_that_cannot_be_trained_are_avoided_and_other_failures_forgotten(
    error_class: str, tmp_path: Path
) -> None:
    config = study(search={"loss.weights.lb": {"float": [0.1, 3]}}, sampler="prior")
    sampling = Sampling(config, open_storage(None, tmp_path / "optuna.journal"), {})
    asked = sampling.ask("t0000", (0, 0))
    assert asked.number is not None
    sampling.report(asked.number, 10, 0.0)  # better than all others, before it went wrong
    sampling.tell(asked.number, "failed", None, error_class)
    trial = sampling.trials()["t0000"]
    avoided = error_class != "DataError"
    assert trial.state == (TrialState.PRUNED if avoided else TrialState.FAIL)
    assert bool(trial.constraints) == avoided and ranked(sampling._optuna) == []
