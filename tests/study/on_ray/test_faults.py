"""What is killed, and what is left of it: real processes, SIGKILL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cbe.data import open_dataset
from cbe.spec import StudyConfig, TrainConfig
from cbe.training.loop import train
from tests.study.bodies import dies, paper_dies_and_fourth_is_worse, starved
from tests.study.conftest import actors, curve, groups, rows, run, study
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("cluster")

FIGURES = ("loss", "loss_unlabeled", "loss_lb", "validation_error", "sampling_rate")


def killed(store: Path) -> list[str]:
    """The processes that `dies` has ended."""
    return (store / "killed").read_text().split()


def unbroken(config: TrainConfig, *figures: str) -> list[tuple[Any, ...]]:
    """The curve of the same config trained in this process, in one piece."""
    curve = []
    train(config, open_dataset(config.data), lambda m, _: curve.append((m["step"], *(m[f] for f in figures))))
    return curve


def one_trial(steps: int, every: int, **sections: Any) -> StudyConfig:
    training = {"steps": steps, "eval_every": every, "lr": 0.03}
    return study(budget={"trials": 1}, scheduler="none", training=training, **sections)


def test_a_trial_whose_process_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    config = one_trial(60, 20)
    _, folder = run(config, tmp_path, body=dies)
    row = rows(folder)["t0000"]
    assert len(killed(tmp_path)) == 1
    assert row["state"] == "completed" and row["retries"] == 1
    assert curve(folder, "t0000", *FIGURES) == unbroken(config.paper_config(0, 0), *FIGURES)
    assert folder.table("metrics").num_rows == 3


@pytest.mark.timeout(600)  # beside the other lanes it waits long for a process
def test_two_workers_train_as_one_does_when_one_is_killed_and_are_pruned_without_a_trace(
    tmp_path: Path,
) -> None:
    config = study(
        method="freematch",
        training={"steps": 30, "eval_every": 10, "lr": 0.03},
        # An almost straight activation has no kink at which the order of a sum could decide (test_world.py).
        model={"leak": 0.99},
        # Paper and base are never stopped: the second of two that were sampled is.
        **{"resources": {"workers": 2}, "budget": {"trials": 4}, "search": {"loss.weights.lb": [0.5, 2.0]}},
        sampler="random",
        scheduler={"name": "asha", "grace": 10, "reduction": 2},
    )
    _, folder = run(config, tmp_path, body=paper_dies_and_fourth_is_worse)
    paper, *_, worse = rows(folder).values()
    assert len(killed(tmp_path)) == 1
    assert (paper["state"], paper["step"], paper["workers"]) == ("completed", 30, 2)
    assert (worse["state"], worse["step"]) == ("pruned", 10)
    found = np.array(curve(folder, "t0000", *FIGURES, "loss_fairness"))
    alone = np.array(unbroken(config.paper_config(0, 0), *FIGURES, "loss_fairness"))
    assert found[:, 0].tolist() == [10, 20, 30]
    np.testing.assert_allclose(found[0], alone[0], rtol=1e-3)  # ten steps
    np.testing.assert_allclose(found[:, :4], alone[:, :4], rtol=0.02)  # the order of sums, after thirty
    until(lambda: actors() == [], what="the end of all processes")
    until(lambda: groups() == [], what="the end of all groups")


def test_a_trial_without_memory_fails_alone(tmp_path: Path) -> None:
    config = study(search={"training.unlabeled_ratio": [2, 4000]}, sampler="grid", scheduler="none")
    _, folder = run(config, tmp_path, body=starved)
    found = {row["training_unlabeled_ratio"]: row for row in rows(folder).values()}
    assert found[2]["state"] == "completed"
    assert (found[4000]["state"], found[4000]["error_class"]) == ("failed", "OutOfMemory")


def test_a_bad_image_ends_the_trials_that_need_it(tmp_path: Path) -> None:
    for label in ("a", "b"):
        for number in range(30):
            path = tmp_path / "images" / "labeled" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), number * 8 if label == "a" else 255 - number * 8).save(path)
    data = {"source": "folder", "path": str(tmp_path / "images"), "root": str(tmp_path), "size": 8}
    plain = study(search={"data.size": [8, 16]}, sampler="grid", scheduler="none").to_plain()
    config = StudyConfig.model_validate(
        {**plain, "data": {**data, "labels": 10, "validation": 10}, "budget": {}}
    )
    open_dataset(config.data)  # decoded and kept
    bad = path.with_name("7.png")
    before = bad.stat()
    bad.write_bytes(b"x" * before.st_size)  # what was decoded is still good
    os.utime(bad, ns=(before.st_atime_ns, before.st_mtime_ns))
    _, folder = run(config, tmp_path / "store")
    states = {(row["data_size"], row["state"], row["error_class"]) for row in rows(folder).values()}
    assert states == {(8, "completed", None), (16, "failed", "DataError")}
    assert "7.png" in next(row["error_text"] for row in rows(folder).values() if row["error_text"])


def test_a_population_exploits_its_best_and_goes_on_where_that_was(tmp_path: Path) -> None:
    space = {"training.lr": {"float": [1e-5, 0.1], "log": True}, "loss.weights.lb": {"float": [0.1, 3]}}
    config = study(
        search=space,
        budget={"trials": 6},
        scheduler={"name": "pbt", "grace": 10},
        training={"steps": 60, "eval_every": 10},
        resources={"concurrent": 2},
    )
    _, folder = run(config, tmp_path)
    found, events = rows(folder), folder.table("events").to_pylist()
    assert {row["state"] for row in found.values()} == {"completed"}
    exploited = {event["trial"] for event in events if event["kind"] == "exploited"}
    assert exploited and exploited.isdisjoint({"t0000", "t0001"})
    for name in found:
        steps = [step for step, *_ in curve(folder, name)]
        assert steps == sorted(set(steps)) and steps[-1] == 60
