"""The sampler's side alone: every sampler asks, is told, and says the truth to who opens its storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from cbe.errors import InputError
from cbe.study.search.sampling import SAMPLERS, Sampling, open_storage
from tests.study.conftest import study

SPACE: dict[str, Any] = {
    "loss.weights.lb": {"float": [0.1, 3], "log": True},
    "ensemble.private_channels": {"int": [1, 16]},
    "loss.target": ["soft", "hard"],
    "loss.agreement": {"float": [0.2, 1.0], "when": {"loss.target": "hard"}},
}


def opened(where: Path, **sections: Any) -> Sampling:
    config = study(**{"search": SPACE, "budget": {"trials": 20}, **sections})
    return Sampling(config, open_storage(None, where / "optuna.journal"), {})


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


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "grid"])
def test_every_sampler_suggests_points_of_the_space_and_goes_on_after_a_restart(
    name: str, tmp_path: Path
) -> None:
    first = drive(opened(tmp_path, sampler=name), range(12))
    again = drive(opened(tmp_path, sampler=name), range(12, 24))
    values = [tuple(point.items()) for point in first + again]
    assert len(set(values)) == 24 or (name == "nsga2" and len(set(values)) > 12)  # children may be alike
    for point in first + again:
        assert 0.1 <= point["loss.weights.lb"] <= 3 and 1 <= point["ensemble.private_channels"] <= 16
        assert ("loss.agreement" in point) == (point["loss.target"] == "hard")


@pytest.mark.parametrize("name", ["tpe", "random", "gp"])
def test_the_same_seed_suggests_the_same_points(name: str, tmp_path: Path) -> None:
    one, other = (drive(opened(tmp_path / folder, sampler=name), range(8)) for folder in ("a", "b"))
    different = drive(opened(tmp_path / "c", sampler={"name": name, "seed": 1}), range(8))
    assert one == other != different


@pytest.mark.parametrize("name", ["tpe", "nsga2", "gp", "random"])
def test_several_objectives_are_told_together(name: str, tmp_path: Path) -> None:
    sampling = opened(tmp_path, sampler=name, objective=["validation_error", "macs"])
    drive(sampling, range(12), macs=7.0)
    asked = sampling.ask("t0012", (0, 0))
    assert asked.number == 12
    sampling.tell(asked.number, "pruned", None)
    assert sampling.trials()["t0012"].state == TrialState.PRUNED
    drive(sampling, range(13, 16), macs=7.0)


def test_what_is_told_twice_counts_once(tmp_path: Path) -> None:
    sampling = opened(tmp_path)
    asked = sampling.ask("t0000", (0, 0))
    assert asked.number is not None
    sampling.tell(asked.number, "failed", None)
    sampling.tell(asked.number, "completed", [0.5])
    sampling.report(asked.number, 30, 0.1)
    trial = sampling.trials()["t0000"]
    assert trial.state == TrialState.FAIL and trial.intermediate_values == {}


def test_a_line_that_a_killed_writer_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    drive(opened(tmp_path), range(3))
    with (tmp_path / "optuna.journal").open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    sampling = opened(tmp_path)
    drive(sampling, range(3, 5))
    assert sorted(opened(tmp_path).trials()) == [f"t{n:04d}" for n in range(5)]


def test_a_trial_that_nobody_could_name_is_ended(tmp_path: Path) -> None:
    storage = open_storage(None, tmp_path / "optuna.journal")
    sampling = Sampling(study(search=SPACE), storage, {})
    optuna.load_study(study_name="small", storage=storage).ask()
    sampling.abandon_nameless()
    known = optuna.load_study(study_name="small", storage=storage).trials
    assert [trial.state for trial in known] == [TrialState.FAIL]


def test_any_optuna_url_can_hold_the_history(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db"
    config = study(search=SPACE, storage={"optuna": url})
    drive(Sampling(config, open_storage(url, tmp_path / "unused"), {}), range(3))
    assert len(optuna.load_study(study_name="small", storage=url).trials) == 3
    assert not (tmp_path / "unused").exists()


def test_a_storage_that_cannot_be_opened_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"storage\.optuna: cannot be opened .*give an Optuna storage URL"):
        open_storage("nosuch://x", tmp_path / "unused")


def test_what_a_killed_driver_told_the_sampler_but_not_the_store_is_not_told_twice(tmp_path: Path) -> None:
    asked = opened(tmp_path).ask("t0000", (0, 0))
    assert asked.number is not None
    opened(tmp_path).report(asked.number, 20, 0.5)
    again = opened(tmp_path)
    for step in (20, 40):  # trained again from the last checkpoint; Optuna would warn of the first
        again.report(asked.number, step, 0.5)
    again.tell(asked.number, "completed", [0.4])
    assert again.trials()["t0000"].intermediate_values == {20: 0.5, 40: 0.5}
