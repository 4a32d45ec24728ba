"""The sampler's side: every sampler asks and is told, and is the same when it is made from the store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from cbe.spec import StudyConfig
from cbe.study.search.sampling import SAMPLERS, Sampling
from tests.study.conftest import study
from tests.study.test_agenda import Driver

SPACE: dict[str, Any] = {
    "loss.weights.lb": {"float": [0.1, 3], "log": True},
    "ensemble.private_channels": {"int": [1, 16]},
    "loss.target": ["soft", "hard"],
    "loss.agreement": {"float": [0.2, 1.0], "when": {"loss.target": "hard"}},
}
NUMBERS: dict[str, Any] = {key: SPACE[key] for key in ("loss.weights.lb", "ensemble.private_channels")}


def of(**sections: Any) -> StudyConfig:
    return study(**{"search": SPACE, "budget": {"trials": 26}, "scheduler": "none", **sections})


def drive(sampling: Sampling, names: range, **values: float) -> list[dict[str, Any]]:
    """Asks, reports twice and completes, one trial after the other."""
    points = []
    for name in names:
        asked = sampling.ask(f"t{name:04d}", (0, 0))
        assert asked.number is not None
        points.append(dict(asked.point))
        value = abs(asked.point["loss.weights.lb"] - 1)
        for step in (10, 20):
            sampling.report(asked.number, step, value + 1 / step)
        sampling.tell(asked.number, "completed", [value, *values.values()])
    return points


def trained(driver: Driver, count: int) -> list[dict[str, Any]]:
    """Trains so many trials, the better the nearer λ_lb is to 1; the points of those that were sampled."""
    points = []
    for _ in range(count):
        begun = driver.start()
        if not begun.preset:
            points.append(dict(begun.point))
        driver.finish(begun, abs(float(begun.point.get("loss.weights.lb", 3)) - 1))
    return points


def seen(sampling: Sampling) -> list[tuple[Any, ...]]:
    """All that a sampler can know of its trials."""

    def plain(trial: FrozenTrial) -> tuple[Any, ...]:
        about = (
            trial.number,
            trial.params,
            trial.distributions,
            trial.state,
            trial.values,
            trial.constraints,
        )
        return (*about, str(trial.intermediate_values), trial.user_attrs, trial.system_attrs)

    return [plain(trial) for trial in sampling._optuna.trials]


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "grid"])
def test_every_sampler_suggests_points_of_the_space_and_goes_on_after_a_restart(
    name: str, tmp_path: Path
) -> None:
    points = []
    for count in (14, 12):
        driver = Driver(of(sampler=name), tmp_path)
        points += trained(driver, count)
        driver.die()
    values = [tuple(point.items()) for point in points]
    assert len(set(values)) == 24 or (name == "nsga2" and len(set(values)) > 12)  # children may be alike
    for point in points:
        assert 0.1 <= point["loss.weights.lb"] <= 3 and 1 <= point["ensemble.private_channels"] <= 16
        assert ("loss.agreement" in point) == (point["loss.target"] == "hard")


@pytest.mark.parametrize("space", [SPACE, NUMBERS], ids=["conditional", "numbers"])
@pytest.mark.parametrize("name", ["prior", "tpe", "gp", "random", "sobol", "nsga2"])
def test_an_interrupted_study_suggests_what_it_would_have_suggested_otherwise(
    name: str, space: dict[str, Any], tmp_path: Path
) -> None:
    config = of(sampler=name, search=space)
    whole = Driver(config, tmp_path / "whole")
    points = trained(whole, 26)
    whole.die()
    parts = []
    for count in (5, 12, 9):
        driver = Driver(config, tmp_path / "parts")
        parts += trained(driver, count)
        driver.die()
    assert parts == points
    assert seen(Driver(config, tmp_path / "parts").sampling) == seen(whole.sampling)


@pytest.mark.parametrize("name", ["prior", "tpe", "gp"])
def test_the_history_that_is_made_from_the_store_is_the_one_that_was_told(name: str, tmp_path: Path) -> None:
    # Of 64 channels at most 63 can be private: the others are infeasible.
    space = {**SPACE, "ensemble.private_channels": {"int": [1, 60]}}
    driver = Driver(of(sampler=name, search=space), tmp_path)
    trained(driver, 2)
    for number in range(20):
        begun = driver.start()
        ends = number % 6
        reports = {"step": 10, "validation_error": math.nan if ends == 5 else 0.5 + number / 100}
        if ends:
            driver.ledger.reported(begun, reports)
        if ends == 1:
            driver.ledger.failed(begun, "NonFiniteLoss", "the loss is not finite")
        elif ends == 2:
            driver.ledger.failed(begun, "DataError", "an image cannot be read")
        elif ends == 3:
            driver.ledger.paused(begun.trial)
        elif ends == 4:
            driver.ledger.ended(begun, {})  # early
        elif ends == 5:
            for step in (20, 30, 40):
                driver.ledger.reported(begun, {**reports, "step": step})
            driver.ledger.ended(begun, {})
    driver.die()
    again = Driver(of(sampler=name, search=space), tmp_path)
    assert seen(again.sampling) == seen(driver.sampling)
    states = {trial.state for trial in again.sampling.trials().values()}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING}
    again.die()


@pytest.mark.parametrize("name", ["tpe", "random", "gp"])
def test_the_same_seed_suggests_the_same_points(name: str) -> None:
    one, other = (drive(Sampling(of(sampler=name)), range(8)) for _ in range(2))
    different = drive(Sampling(of(sampler={"name": name, "seed": 1})), range(8))
    assert one == other != different


@pytest.mark.parametrize("name", ["tpe", "nsga2", "gp", "random"])
def test_several_objectives_are_told_together(name: str) -> None:
    sampling = Sampling(of(sampler=name, objective=["validation_error", "macs"]))
    drive(sampling, range(12), macs=7.0)
    asked = sampling.ask("t0012", (0, 0))
    assert asked.number == 12
    sampling.tell(asked.number, "pruned", None)
    assert sampling.trials()["t0012"].state == TrialState.PRUNED
    drive(sampling, range(13, 16), macs=7.0)


def test_what_is_told_twice_counts_once() -> None:
    sampling = Sampling(of())
    asked = sampling.ask("t0000", (0, 0))
    assert asked.number is not None
    sampling.report(asked.number, 20, 0.5)
    sampling.report(asked.number, 20, 0.4)  # trained again from the last checkpoint
    sampling.tell(asked.number, "failed", None)
    sampling.tell(asked.number, "completed", [0.5])
    sampling.report(asked.number, 30, 0.1)
    trial = sampling.trials()["t0000"]
    assert trial.state == TrialState.FAIL and trial.intermediate_values == {20: 0.5}
