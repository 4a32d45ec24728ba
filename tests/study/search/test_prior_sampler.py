"""The sampler that starts from priors: it stays in the space, uses a right prior and drops a wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from cbe.spec import Parameter
from cbe.spec.search import applicable
from cbe.study.search.prior_sampler import SOURCE, ExpectedEnds, PriorSampler, log_improvement, scores, tpe
from cbe.study.search.sampling import Sampling
from cbe.study.search.transfer import FROM
from tests.study.conftest import study

Space = dict[str, Parameter]
BEST = {"a": 0.8, "b": 0.7, "c": 0.6, "d": 0.5, "heads": 6, "kind": "soft"}
OPPOSITE = {"a": 0.05, "b": 0.05, "c": 0.95, "d": 0.95, "heads": 1, "kind": "hard"}
TRIALS = 60


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
    """A point; each parameter of these spaces comes after those that decide whether it exists."""
    point: dict[str, Any] = {}
    for key, parameter in search.items():
        if applicable(key, parameter, point):
            point[key] = parameter.suggest(trial, key)
    return point


def searched(sampler: BaseSampler, search: Space, trials: int = TRIALS) -> optuna.Study:
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
        "none": lambda seed: PriorSampler(space(), {}, seed, 6),
        "right": lambda seed: PriorSampler(space(BEST), {}, seed, 6),
        "wrong": lambda seed: PriorSampler(space(OPPOSITE), {}, seed, 6),
        "surely wrong": lambda seed: PriorSampler(space(OPPOSITE, "high"), {}, seed, 6),
    }
    return [searched(make[name](seed), space()) for seed in range(9)]


def median_best(name: str) -> np.ndarray[Any, Any]:
    """The best value after each trial."""
    curves = [np.minimum.accumulate([trial.value for trial in found.trials]) for found in runs(name)]
    return np.median(curves, axis=0)


def trials_to(name: str, goal: float) -> float:
    """The trials that it takes to reach a value."""
    reached = median_best(name) <= goal
    return 1 + int(reached.argmax()) if reached.any() else math.inf


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


@settings(max_examples=20, deadline=None)
@given(st.lists(parameters, min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_suggestions_lie_in_any_space(plain: list[dict[str, Any]], random: Any, believes: bool) -> None:
    search: Space = {"switch": Parameter.model_validate({"choice": ["on", "off"]})}
    for number, each in enumerate(plain):
        at = Parameter.model_validate(each).draw_evenly(np.random.default_rng(random.randrange(99)))
        belief = {"prior": {"at": at}} if believes else {}
        condition = {"when": {"switch": "on"}} if random.random() < 0.5 else {}
        search[f"p{number}"] = Parameter.model_validate({**each, **belief, **condition})
    found = optuna.create_study(sampler=PriorSampler(search, {}, 0, startup=4))
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
    sampling = Sampling(config)
    kinds = set()
    for number in range(30):
        asked = sampling.ask(f"t{number:04d}", (0, 0))
        assert asked.number is not None
        kinds.add(asked.point["loss.target"])
        assert ("loss.agreement" in asked.point) == (asked.point["loss.target"] == "hard")
        sampling.tell(asked.number, "completed", [asked.point["loss.weights.lb"]])
    assert kinds == {"soft", "hard"}


def test_a_study_that_searches_nothing_has_a_sampler_too(tmp_path: Path) -> None:
    config = study(search={}, sampler="prior")
    assert Sampling(config).trials() == {}


def test_the_first_trials_gather_around_the_prior() -> None:
    found = searched(PriorSampler(space(BEST, "high"), {}, 0, startup=TRIALS), space())
    by_prior = [trial.params for trial in found.trials if trial.system_attrs[SOURCE] == "prior"]
    assert 20 <= len(by_prior) <= 40 and set(sources(found)) == {"prior", "even"}
    for key in "abcd":
        assert abs(np.mean([point[key] for point in by_prior]) - BEST[key]) < 0.1
    assert sum(point["kind"] == "soft" for point in by_prior) > 0.7 * len(by_prior)


def test_without_priors_the_search_starts_evenly_and_keeps_up_with_plain_tpe() -> None:
    assert all(sources(found)[:6] == ["even"] * 6 for found in runs("none"))
    assert not any("prior" in sources(found) for found in runs("none"))
    assert trials_to("none", median_best("tpe")[TRIALS - 1]) <= TRIALS


@pytest.mark.parametrize("after", [5, 10, 20, 40])
def test_a_right_prior_is_ahead_of_plain_tpe_from_the_first_trials_on(after: int) -> None:
    assert median_best("right")[after - 1] < median_best("tpe")[after - 1]


@pytest.mark.parametrize("after", [15, 20, 30, 46])
@pytest.mark.parametrize("name", ["wrong", "surely wrong"])
def test_a_wrong_prior_costs_at_most_a_third_more_trials_than_plain_tpe(name: str, after: int) -> None:
    assert trials_to(name, median_best("tpe")[after - 1]) <= 1.3 * after


def test_the_same_seed_suggests_the_same_points() -> None:
    one, other, different = (
        searched(PriorSampler(space(BEST), {}, seed, 6), space(), 25) for seed in (3, 3, 4)
    )
    points = [[trial.params for trial in found.trials] for found in (one, other, different)]
    assert points[0] == points[1] != points[2] and sources(one) == sources(other)


SMALL: Space = {"n": Parameter.model_validate({"int": [1, 24]})}


def test_the_model_never_suggests_what_has_run_as_long_as_there_is_more() -> None:
    found = optuna.create_study(sampler=PriorSampler(SMALL, {}, 0, startup=4))
    suggested: list[int] = []
    for _ in range(18):
        trial = found.ask()
        number = suggest(trial, SMALL)["n"]
        if found.trials[-1].system_attrs[SOURCE] == "model":
            assert number not in suggested
        suggested.append(number)
        found.tell(trial, (number - 9) ** 2)


def test_points_of_earlier_studies_may_run_here_too() -> None:
    best = Parameter.model_validate({"int": [1, 5], "prior": {"at": 3}})
    found = optuna.create_study(sampler=PriorSampler({"n": best}, {}, 1, startup=4))
    for number in range(1, 6):
        point, over = {"n": number}, {"n": best.distribution()}
        attributes = {FROM: "earlier/t0000"}
        found.add_trial(
            optuna.create_trial(
                params=point, distributions=over, value=(number - 3) ** 2, user_attrs=attributes
            )
        )
    assert suggest(found.ask(), {"n": best}) == {"n": 3}


def test_trials_that_run_keep_the_next_one_away() -> None:
    found = optuna.create_study(sampler=PriorSampler(space(), {}, 2, startup=6))
    for _ in range(30):
        trial = found.ask()
        found.tell(trial, loss(suggest(trial, space())))
    at_once = [suggest(found.ask(), space()) for _ in range(6)]
    assert len({tuple(point.items()) for point in at_once}) == 6


def test_trials_that_wait_at_a_rung_teach_the_model(tmp_path: Path) -> None:
    """In a race most trials wait until the search is over."""
    config = study(search={"loss.weights.lb": {"float": [0, 3]}}, sampler="prior")
    sampling = Sampling(config)
    asked_for = []
    for number in range(24):
        asked = sampling.ask(f"t{number:04d}", (0, 0))
        assert asked.number is not None
        asked_for.append(asked.point["loss.weights.lb"])
        sampling.report(asked.number, 10, abs(asked_for[-1] - 2))
        sampling.pause(asked.trial)
    assert np.median(np.abs(np.array(asked_for[10:]) - 2)) < 0.3


def test_trials_under_way_teach_nothing_yet() -> None:
    found = optuna.create_study(sampler=PriorSampler(space(), {}, 0, startup=6))
    for _ in range(20):
        trial = found.ask()
        trial.report(loss(suggest(trial, space())), 1)
    assert set(sources(found)) == {"even"}


def ended(
    curve: Mapping[int, float], state: TrialState = TrialState.PRUNED, value: float | None = None
) -> FrozenTrial:
    return optuna.create_trial(state=state, value=value, intermediate_values=dict(curve))


def expected_ends(trials: Sequence[FrozenTrial], sign: int = 1) -> Any:
    known = optuna.create_study()
    known.add_trials(trials)
    ends = ExpectedEnds()
    ends.of(known.trials[:2], sign)  # what is kept of them is used again
    return ends.of(known.trials, sign)


@pytest.mark.parametrize("sign", [1, -1])
def test_trials_that_were_ended_early_count_with_what_they_would_have_reached(sign: int) -> None:
    trials = [
        ended({10: 0.6, 20: 0.5}, TrialState.COMPLETE, 0.3),
        ended({10: 0.8, 20: 0.5}, TrialState.COMPLETE, 0.4),
        ended({20: 0.9}, TrialState.COMPLETE, 0.5),
        ended({10: 0.7}),  # the others have gained 0.3 and 0.4 since
        ended({10: 0.9, 20: 0.7}),  # 0.2, 0.1, 0.4
        ended({15: 0.9}),  # nobody was seen at this step
        ended({}),  # infeasible
    ]
    values, whole = expected_ends(trials, sign)
    assert values[:-1] == pytest.approx([sign * value for value in (0.3, 0.4, 0.5, 0.35, 0.5, 0.9)])
    assert values[-1] == math.inf and whole.tolist() == [True] * 3 + [False] * 4


def test_what_went_wrong_is_as_bad_as_the_worst() -> None:
    broken = optuna.create_trial(
        state=TrialState.PRUNED, intermediate_values={10: 0.0}, constraints={"finite loss": 1.0}
    )
    trials = [ended({}, TrialState.COMPLETE, 0.2), broken, ended({10: math.nan}), ended({}), ended({10: 0.6})]
    values, _ = expected_ends(trials)
    assert values.tolist() == [0.2, math.inf, math.inf, math.inf, 0.6]
    found = scores(values)
    assert found[1:].tolist() == [found[4]] * 4 and found[0] < found[4]


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.0, 0.0, 0.5],
        [0.0, 0.0],
        [-0.5, 0.2],
        [math.inf, math.inf],
        [0.3, math.inf],
        [0.0, 5e-324, 5e-324],
    ],
)
def test_scores_are_finite_and_keep_the_order(values: list[float]) -> None:
    found = scores(np.array(values))
    assert np.isfinite(found).all() and (np.diff(found) >= 0).all()


def test_the_expected_improvement_is_what_simulation_finds() -> None:
    drawn = np.random.default_rng(0).normal(0.4, 0.2, 200_000)
    found = log_improvement(0.3, np.array([0.4]), np.array([0.2]))[0]
    assert math.exp(found) == pytest.approx(np.maximum(0.3 - drawn, 0).mean(), rel=0.02)


@pytest.mark.parametrize("error_class", ["NonFiniteLoss", "OutOfMemory", "Infeasible"])
def test_configs_that_cannot_be_trained_are_avoided(error_class: str, tmp_path: Path) -> None:
    """Low values are best, where they can be trained: above 1."""
    config = study(search={"loss.weights.lb": {"float": [0, 3]}}, sampler="prior")
    sampling = Sampling(config)
    asked_for = []
    for name in range(24):
        asked = sampling.ask(f"t{name:04d}", (0, 0))
        assert asked.number is not None
        value = asked.point["loss.weights.lb"]
        asked_for.append(value)
        if value >= 1:
            sampling.tell(asked.number, "completed", [value])
        elif error_class == "Infeasible":
            sampling.tell(asked.number, "infeasible", None)
        else:
            sampling.report(asked.number, 10, 0.0)  # better than all others, before it went wrong
            sampling.tell(asked.number, "failed", None, error_class)
    assert sum(value < 1 for value in asked_for[10:]) <= 3  # evenly drawn ones among them
    assert 1 < np.median(asked_for[10:]) < 1.6


def test_failures_that_the_config_has_no_part_in_are_forgotten(tmp_path: Path) -> None:
    config = study(search={"loss.weights.lb": {"float": [0.1, 3]}}, sampler="prior")
    sampling = Sampling(config)
    asked = sampling.ask("t0000", (0, 0))
    assert asked.number is not None
    sampling.tell(asked.number, "failed", None, "DataError")
    trial = sampling.trials()["t0000"]
    assert trial.state == TrialState.FAIL and not trial.constraints


def test_several_objectives_are_left_to_tpe() -> None:
    def points(sampler: BaseSampler) -> list[dict[str, Any]]:
        found = optuna.create_study(directions=["minimize"] * 2, sampler=sampler)
        for _ in range(16):
            trial = found.ask()
            point = suggest(trial, space())
            found.tell(trial, [loss(point), point["heads"]])
        return [trial.params for trial in found.trials]

    assert points(PriorSampler(space(BEST), {}, 0, 6)) == points(tpe(0, 6))
