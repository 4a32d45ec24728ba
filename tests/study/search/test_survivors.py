"""A race over pairs of seed and label split: who goes on, who is dropped, and what a dying driver changes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import ttest_rel

from cbe.configs import grouped
from cbe.errors import ConfigError
from cbe.spec import StudyConfig, read_config
from cbe.spec.terms import PRESETS, Pair
from cbe.study.assignment import Assignment
from cbe.study.search.survivors import is_worse, promotions, survivors
from tests.study.conftest import rows, study
from tests.study.test_agenda import Driver

FIRST, SECOND, THIRD = (0, 0), (1, 1), (2, 2)


def race(trials: int = 30, **sections: Any) -> StudyConfig:
    """By default nineteen trials on the first pair, then five and two configs beside base and paper."""
    plain = study(search={"loss.weights.lb": {"float": [0.1, 3]}}).to_plain()
    scheduler = {"scheduler": {"name": "race"}, "budget": {"trials": trials}}
    return StudyConfig.model_validate({**plain, "sampler": "random", **scheduler, **sections})


def row(config: str, pair: Pair, objective: float, state: str = "completed") -> dict[str, Any]:
    seed, split = pair
    preset = config if config in ("base", "paper") else None
    made = {"config_id": config, "preset": preset, "seed": seed, "label_split": split, "state": state}
    return {**made, "role": "search", "objective": objective, "params": json.dumps({"of": config})}


def table(configs: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Rows of configs, each with its objectives on the first pairs."""
    pairs = (FIRST, SECOND, THIRD)
    return [
        row(config, pair, objective)
        for config, found in configs.items()
        for pair, objective in zip(pairs, found, strict=False)
    ]


def wanted(config: StudyConfig, known: list[dict[str, Any]]) -> list[tuple[str, Pair]]:
    return [(each.preset or each.point["of"], each.pair) for each in promotions(config, known)]


def test_the_best_that_are_ahead_of_the_base_go_on_behind_the_presets() -> None:
    errors = {f"c{n}": [0.1 * n] for n in range(1, 10)} | {"base": [0.45], "paper": [0.6]}
    assert wanted(race(), table(errors)) == [
        *(("base", SECOND), ("paper", SECOND)),
        *(("c1", SECOND), ("c2", SECOND), ("c3", SECOND), ("c4", SECOND)),  # there is room for a fifth
    ]


def test_only_as_many_go_on_as_there_is_room_for() -> None:
    errors = {f"c{n}": [0.01 * n] for n in range(1, 10)} | {"base": [0.45], "paper": [0.6]}
    assert [config for config, _ in wanted(race(), table(errors))][2:] == ["c1", "c2", "c3", "c4", "c5"]


def test_larger_is_better_where_the_study_says_so() -> None:
    config = race(objective={"metric": "validation_error", "direction": "maximize"})
    errors = {"low": [0.2], "high": [0.9], "base": [0.5], "paper": [0.5]}
    assert [each for each, _ in wanted(config, table(errors))][2:] == ["high"]


def test_a_config_that_is_behind_the_base_on_shared_pairs_leaves() -> None:
    errors = {"a": [0.2, 0.6], "b": [0.3, 0.3], "base": [0.4, 0.35], "paper": [0.6, 0.6]}
    assert survivors(race(), table(errors), 1) == ["a", "b"]
    assert survivors(race(), table(errors), 2) == ["b"]
    assert wanted(race(), table(errors)) == [("base", THIRD), ("paper", THIRD), ("b", THIRD)]


def test_nobody_runs_on_when_nobody_is_ahead_of_the_base() -> None:
    errors = {"a": [0.4], "b": [0.5], "base": [0.4], "paper": [0.3]}
    assert promotions(race(), table(errors)) == []


def test_without_a_run_of_the_base_the_best_go_on() -> None:
    known = [*table({"a": [0.4], "b": [0.5]}), row("base", FIRST, 0.1, "failed")]
    assert [config for config, _ in wanted(race(), known)] == ["base", "a", "b"]


@pytest.mark.parametrize("state", ["pruned", "failed", "infeasible"])
def test_what_was_not_trained_to_its_end_does_not_go_on(state: str) -> None:
    known = [*table({"a": [0.3], "base": [0.5], "paper": [0.5]}), row("b", FIRST, 0.1, state)]
    assert survivors(race(), known, 1) == ["a"]
    assert survivors(race(), [*known, row("nan", FIRST, float("nan"))], 1) == ["a"]


def test_a_config_that_lacks_one_of_the_pairs_is_not_compared() -> None:
    errors = {"a": [0.3, 0.3], "b": [0.1], "base": [0.5, 0.5], "paper": [0.5, 0.5]}
    known = [*table(errors), row("b", SECOND, 0.1, "failed")]
    assert survivors(race(), known, 2) == ["a"]


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_pair_waits_for_all_runs_on_those_before(state: str) -> None:
    known = table({"a": [0.3], "base": [0.5], "paper": [0.5]})
    assert promotions(race(), [*known, row("b", FIRST, 0.1, state)]) == []
    begun = [row(config, SECOND, 0.3) for config in ("a", "base")]
    assert wanted(race(), [*known, *begun, row("paper", SECOND, 0.5, state)]) == []
    assert wanted(race(), [*known, *begun]) == [("paper", SECOND)]


def test_runs_of_the_confirmation_do_not_count() -> None:
    known = table({"a": [0.3], "base": [0.5], "paper": [0.5]})
    confirmed = [{**row("a", SECOND, 0.9), "role": "confirm"}]
    assert promotions(race(), [*known, *confirmed]) == promotions(race(), known) != []


def test_a_config_that_a_paired_test_shows_to_be_worse_than_the_leader_is_dropped() -> None:
    config = race(120)  # room for ten configs on the third pair
    errors = {
        "leader": [0.20, 0.25],
        "noisy": [0.19, 0.30],  # behind by a little, not surely
        "surely worse": [0.300, 0.351],
        "base": [0.5, 0.5],
        "paper": [0.5, 0.5],
    }
    assert survivors(config, table(errors), 2) == ["leader", "noisy"]


@pytest.mark.parametrize("seed", range(20))
def test_the_test_against_the_leader_agrees_with_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = int(rng.integers(2, 9))
    leader = rng.normal(0.3, 0.05, pairs)
    values = leader + rng.normal(rng.choice([0.0, 0.02, 0.05]), 0.03, pairs)
    expected = ttest_rel(values, leader, alternative="greater").pvalue < 0.05
    assert is_worse(values.tolist(), leader.tolist()) == expected


@pytest.mark.parametrize(
    "values, worse",
    [([0.4], False), ([0.2, 0.2], False), ([0.1, 0.15], False), ([0.25, 0.25], True), ([0.3, 0.3], True)],
)
def test_a_config_is_worse_if_it_is_so_by_the_same_on_all_pairs_but_not_on_one(
    values: list[float], worse: bool
) -> None:
    assert is_worse(values, [0.2] * len(values)) == worse


@pytest.mark.parametrize(
    "trials, pairs, first",
    [(2, 1, 2), (6, 1, 6), (8, 2, 5), (12, 2, 8), (18, 2, 13), (30, 3, 19), (60, 3, 41), (100, 3, 71)],
)
def test_few_trials_give_fewer_pairs(trials: int, pairs: int, first: int) -> None:
    config = race(trials)
    assert config.pairs == (FIRST, SECOND, THIRD)[:pairs]
    assert config.first_pair_trials == first


@pytest.mark.parametrize("trials", range(1, 80))
@pytest.mark.parametrize("pairs", [None, 1, 2, 6])
def test_a_race_has_as_many_trials_as_its_budget_at_most(trials: int, pairs: int | None) -> None:
    config = race(trials, scheduler={"name": "race", "pairs": pairs})
    levels = range(1, len(config.pairs))
    further = sum(len(PRESETS) + config.survivors(level) for level in levels)
    first = config.first_pair_trials
    assert first == min(trials, 3) or (first >= 3 and first + further == trials)
    if pairs is None:
        assert first >= 0.6 * trials
    sizes = [config.survivors(level) for level in levels]
    assert sizes == sorted(sizes, reverse=True) and all(size >= 1 for size in sizes)


def test_the_file_may_say_on_how_many_pairs() -> None:
    config = race(40, scheduler={"name": "race", "pairs": 4}, seeds=[3], label_splits=[10])
    assert config.pairs == ((3, 10), (4, 11), (5, 12), (6, 13))
    assert race(40, scheduler={"name": "race", "pairs": 1}).pairs == (FIRST,)


def test_lists_of_seeds_and_label_splits_are_the_pairs() -> None:
    config = race(12, seeds=[5, 7], label_splits=[1, 2])
    assert config.pairs == ((5, 1), (5, 2), (7, 1), (7, 2))


def test_the_confirmation_is_on_pairs_that_the_race_has_not_seen() -> None:
    config = race(30, confirm={"configs": 1, "runs": 3})
    assert config.confirm_pairs == ((3, 3), (4, 4), (5, 5))
    with pytest.raises(ValidationError, match="the search has seen 1, 2"):
        race(30, confirm={"configs": 1, "seeds": [1, 2, 9]})


def test_confirmations_on_pairs_that_a_longer_race_has_seen_since_count_no_more() -> None:
    def ran(role: str, pair: Pair) -> dict[str, Any]:
        return {**row("a", pair, 0.3), "role": role, "trial": f"{role[0]}{pair[0]:04d}"}

    before = [ran("search", FIRST), ran("confirm", SECOND), ran("confirm", (5, 5))]
    (short,), (long,) = (grouped(known, race(30)) for known in (before, [*before, ran("search", SECOND)]))
    assert short.runs("confirm").keys() == {SECOND, (5, 5)} and long.runs("confirm").keys() == {(5, 5)}


@pytest.mark.parametrize(
    "trials, runs", [(2, 2), (3, 3), (8, 4), (30, 4)]
)  # the presets, and what was sampled on the first pair, two at most
def test_as_many_runs_to_confirm_are_expected_as_configs_are_sampled(trials: int, runs: int) -> None:
    assert race(trials, confirm={"configs": 2, "runs": 1}).confirm_runs == runs


def test_a_grid_and_a_study_that_searches_nothing_are_no_race() -> None:
    grid = race(30, sampler="grid", search={"loss.weights.lb": [0.5, 1.0, 2.0]})
    for config in (grid, race(30, search={})):
        assert not config.is_race and config.pairs == (FIRST,) and config.first_pair_trials == 30


@pytest.mark.parametrize(
    "sections, said",
    [
        ({"scheduler": {"name": "asha", "pairs": 3}}, "pairs are for the scheduler race, not for asha"),
        ({"scheduler": {"name": "race", "pairs": 0}}, "greater than or equal to 1"),
        ({"scheduler": {"name": "race", "pairs": 3}, "seeds": [0, 1]}, "list the pairs already"),
        (
            {"scheduler": {"name": "race", "pairs": 3}, "sampler": "grid", "search": {"training.lr": [0.1]}},
            "a grid runs all of its points on all pairs",
        ),
    ],
)
def test_pairs_that_make_no_sense_are_refused_in_one_line(
    sections: dict[str, Any], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps({"name": "wrong", "budget": {"trials": 9}, **sections}))
    with pytest.raises(ConfigError) as caught:
        read_config(StudyConfig, file)
    lines = [line for line in str(caught.value).splitlines() if "scheduler" in line]
    assert len(lines) == 1 and said in lines[0]


# What the agenda makes of it.


def error_of(assignment: Assignment) -> float:
    """Better the nearer a weight is to 1, with something that depends on config and pair."""
    if assignment.preset:
        return {"base": 0.8, "paper": 0.7}[assignment.preset]
    weight = assignment.point["loss.weights.lb"]
    return 0.3 + 0.1 * abs(weight - 1) + 0.05 * math.sin(100 * weight + 2 * assignment.pair[0])


def run_on(
    driver: Driver, trials: int | None = None, error: Callable[[Assignment], float] = error_of
) -> list[Assignment]:
    """Runs one trial after the other, to the end or as many as are told."""
    done: list[Assignment] = []
    while len(done) != trials and isinstance(upcoming := driver.agenda.following(), Assignment):
        driver.ledger.started(upcoming)
        driver.finish(upcoming, error(upcoming))
        done.append(upcoming)
    return done


def finished(config: StudyConfig, where: Path) -> Counter[tuple[str, int, int]]:
    """The runs of a study that nobody interrupts."""
    driver = Driver(config, where)
    run_on(driver)
    driver.die()
    return runs_in(driver)


def runs_in(driver: Driver) -> Counter[tuple[str, int, int]]:
    found = rows(driver.folder).values()
    assert {each["state"] for each in found} == {"completed"}
    return Counter((each["preset"] or each["params"], each["seed"], each["label_split"]) for each in found)


def test_all_sampled_configs_run_on_the_first_pair_and_few_on_the_others(tmp_path: Path) -> None:
    found = finished(race(30), tmp_path)
    assert set(found.values()) == {1}
    on = [{config for config, *pair in found if tuple(pair) == each} for each in (FIRST, SECOND, THIRD)]
    assert [len(configs) for configs in on] == [19, 7, 4] and found.total() == 30
    assert on[2] < on[1] < on[0] and on[2] > {"base", "paper"}


def test_the_configs_that_go_on_are_the_best_of_those_before(tmp_path: Path) -> None:
    driver = Driver(race(30), tmp_path)
    done = run_on(driver)
    driver.die()
    errors: dict[str, list[float]] = {}
    for each in done:
        if not each.preset:
            errors.setdefault(json.dumps(each.point), []).append(error_of(each))
    for level, size in ((1, 5), (2, 2)):
        compared = [config for config, found in errors.items() if len(found) >= level]
        best = sorted(compared, key=lambda config: np.mean(errors[config][:level]))[:size]
        assert {config for config in compared if len(errors[config]) > level} == set(best)


def test_nothing_on_a_further_pair_begins_before_all_on_those_before_have_ended(tmp_path: Path) -> None:
    config = race(12)
    driver = Driver(config, tmp_path)
    run_on(driver, config.first_pair_trials - 2)
    last = [driver.start(), driver.start()]
    assert driver.agenda.following() == "wait"
    driver.finish(last[0], 0.2)
    assert driver.agenda.following() == "wait"
    driver.finish(last[1], 0.2)
    second = [driver.start() for _ in range(4)]
    assert [each.preset for each in second] == ["paper", "base", None, None]
    assert {each.pair for each in second} == {SECOND}
    assert {json.dumps(each.point) for each in second[2:]} == {json.dumps(each.point) for each in last}
    driver.die()


FIRST_OF_12 = 8  # then base, paper and two configs on the second pair


@pytest.mark.parametrize("unfinished", [0, 1, 2])
@pytest.mark.parametrize("before", range(FIRST_OF_12, 12))
def test_a_driver_that_dies_in_the_race_over_pairs_leads_to_the_same_runs(
    before: int, unfinished: int, tmp_path: Path
) -> None:
    config = race(12)
    assert config.first_pair_trials == FIRST_OF_12
    first = Driver(config, tmp_path / "dies")
    run_on(first, before)
    for _ in range(min(unfinished, 12 - before)):
        first.start()
    first.die()
    second = Driver(config, tmp_path / "dies")
    run_on(second)
    second.die()
    assert runs_in(second) == finished(config, tmp_path / "lives")


@pytest.mark.parametrize("before", range(0, 31, 3))
def test_a_driver_that_dies_at_any_time_runs_each_config_once_on_each_of_its_pairs(
    before: int, tmp_path: Path
) -> None:
    config = race(30)
    first = Driver(config, tmp_path)
    run_on(first, before)
    first.die()
    second = Driver(config, tmp_path)
    run_on(second)
    second.die()
    found = runs_in(second)
    assert set(found.values()) == {1}
    assert Counter(tuple(pair) for _, *pair in found) == {FIRST: 19, SECOND: 7, THIRD: 4}


@pytest.mark.parametrize("trials", [1, 2, 3, 4, 8, 9, 13, 20])
@pytest.mark.parametrize("pairs", [None, 5])
def test_the_trials_of_the_budget_are_never_exceeded(trials: int, pairs: int | None, tmp_path: Path) -> None:
    config = race(trials, scheduler={"name": "race", "pairs": pairs})
    assert finished(config, tmp_path).total() == trials


def test_trials_are_left_over_where_nobody_is_worth_a_further_pair(tmp_path: Path) -> None:
    config = race(12, confirm={"configs": 1, "runs": 2})
    driver = Driver(config, tmp_path)
    done = run_on(driver, error=lambda each: 0.2 if each.preset == "base" else 0.4)
    driver.die()
    assert Counter((each.role, each.pair) for each in done) == {
        ("search", FIRST): 8,
        ("confirm", (2, 2)): 2,  # base and paper alone
        ("confirm", (3, 3)): 2,
    }


def test_a_race_goes_through_the_listed_pairs(tmp_path: Path) -> None:
    found = finished(race(20, seeds=[4], label_splits=[0, 1]), tmp_path)
    assert Counter(tuple(pair) for _, *pair in found) == {(4, 0): 15, (4, 1): 5}


def test_a_grid_runs_all_of_its_points_on_all_pairs(tmp_path: Path) -> None:
    lists = {"seeds": [0, 1], "label_splits": [0]}
    plain = race(sampler="grid", search={"loss.weights.lb": [0.25, 0.5, 2.0]}, **lists).to_plain()
    found = finished(StudyConfig.model_validate({**plain, "budget": {}}), tmp_path)
    assert Counter(tuple(pair) for _, *pair in found) == {(0, 0): 5, (1, 0): 5}


def test_presets_run_on_all_listed_pairs_where_nothing_is_searched(tmp_path: Path) -> None:
    found = finished(race(10, search={}, seeds=[0, 1, 2]), tmp_path)
    assert found == {(preset, seed, 0): 1 for preset in ("base", "paper") for seed in range(3)}


def test_points_that_cannot_be_built_take_no_place_on_the_first_pair(tmp_path: Path) -> None:
    search = {"ensemble.private_channels": {"int": [60, 70]}}  # of 64 channels
    config = race(12, search=search)
    driver = Driver(config, tmp_path)
    run_on(driver, error=lambda each: {"base": 0.5, "paper": 0.5}.get(each.preset or "", 0.3))
    driver.die()
    states = Counter((each["state"], each["label_split"]) for each in rows(driver.folder).values())
    assert states["completed", 0] == 8 and states["completed", 1] == 4 and states["infeasible", 0] > 0
