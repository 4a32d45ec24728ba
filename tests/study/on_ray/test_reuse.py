"""Runs that the store already holds: taken over where nothing that decides their figures differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbe.models.export import export_model
from cbe.spec import StudyConfig
from cbe.store.folder import DATA_FILE, Store, StudyFolder
from cbe.store.rows import pair_of
from cbe.study.assignment import Assignment
from cbe.study.lifecycle import begin
from cbe.study.trial.reuse import reusable_runs
from tests.conftest import Cbe
from tests.study.bodies import refuses
from tests.study.conftest import curve, rows, run, study
from tests.study.learning import DIGEST, Driver, ran

POINTS = {"loss.weights.lb": [0.5, 2.0]}


def points(name: str, **sections: Any) -> StudyConfig:
    """A grid of two points beside the paper's config and the base."""
    plain = study(**{"name": name, "search": POINTS, "sampler": "grid", **sections}).to_plain()
    return StudyConfig.model_validate({**plain, "budget": {}})


def without(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


def test_a_run_that_another_study_has_made_is_taken_over(tmp_path: Path) -> None:
    first = ran(points("first"), tmp_path)
    second = ran(points("second"), tmp_path)
    assert first.trained == ["t0000", "t0001", "t0002", "t0003"] and second.trained == []
    own = ("study", "revision", "updated", "started", "wall_s", "reused_from", "gpu_s", "cost_usd")
    made, taken = rows(first.folder), rows(second.folder)
    for name, row in taken.items():
        assert row["reused_from"] == f"first/{name}" and row["state"] == "completed"
        assert (row["wall_s"], row["gpu_s"], row["cost_usd"]) == (0, 0, 0)
        assert without(row, *own) == without(made[name], *own)
        assert curve(second.folder, name, "validation_error", "validation_loss") == curve(
            first.folder, name, "validation_error", "validation_loss"
        )
    matrices = second.folder.table("confusions", ["trial", "step", "matrix"]).to_pylist()
    assert sorted((each["trial"], each["step"], each["matrix"]) for each in matrices) == [
        (name, 40, [[40.0]]) for name in sorted(taken)
    ]
    told = second.sampling.trials()
    assert {name: trial.value for name, trial in told.items()} == {
        name: taken[name]["objective"] for name in told
    }
    assert len(told) == 2 and all(len(trial.intermediate_values) == 4 for trial in told.values())
    events = second.folder.table("events", ["trial", "kind", "details"]).to_pylist()
    assert {each["trial"]: json.loads(each["details"]) for each in events if each["kind"] == "reused"} == {
        name: {"reused_from": f"first/{name}"} for name in taken
    }


def test_only_what_is_missing_is_trained(tmp_path: Path) -> None:
    ran(points("first"), tmp_path)
    wider = ran(points("second", search={"loss.weights.lb": [0.5, 2.0, 2.5]}, seeds=[0, 1]), tmp_path)
    found = rows(wider.folder)
    reused = {name for name, row in found.items() if row["reused_from"]}
    assert len(found) == 10 and reused.isdisjoint(wider.trained)
    assert sorted((found[name]["seed"], found[name]["loss_weights_lb"] or 0) for name in reused) == [
        *((0, 0), (0, 0.5), (0, 1), (0, 2))
    ]


def test_a_reused_run_is_not_taken_over_once_more(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        driver = ran(points(name), tmp_path)
    assert {row["reused_from"].partition("/")[0] for row in rows(driver.folder).values()} == {"first"}


@pytest.mark.parametrize(
    "sections",
    [
        {"training": {"steps": 60}},
        {"training": {"precision": "float32"}},
        {"training": {"compile": True}},
        {"resources": {"workers": 2}},
        {"seeds": [7]},
        {"label_splits": [7]},
        {"storage": {"reuse": False}},
        {"scheduler": "pbt", "sampler": "random", "search": {"loss.weights.lb": [0.5, 2.0]}},
    ],
    ids=lambda sections: json.dumps(sections),
)
def test_what_differs_is_trained(sections: dict[str, Any], tmp_path: Path) -> None:
    ran(points("first"), tmp_path)
    store = Store.open(str(tmp_path))
    assert reusable_runs(points("second"), store, DIGEST, "cpu").runs
    found = reusable_runs(points("second", **sections), store, DIGEST, "cpu")
    config = points("second", **sections)
    driver = Driver(config, tmp_path)
    upcoming = driver.agenda.following()
    driver.die()
    assert isinstance(upcoming, Assignment) and upcoming.trial == "t0000"
    assert not any(found.find("search", key[0], pair) for key in found.runs for pair in config.pairs)


@pytest.mark.parametrize(("digest", "device"), [("another", "cpu"), (DIGEST, "Tesla T4"), (DIGEST, None)])
def test_other_images_and_other_devices_are_trained_on(
    digest: str, device: str | None, tmp_path: Path
) -> None:
    ran(points("first"), tmp_path)
    assert not reusable_runs(points("second"), Store.open(str(tmp_path)), digest, device).runs


@pytest.mark.parametrize(("column", "value"), [("git_commit", "0" * 40), ("versions", '{"torch": "1.0"}')])
def test_runs_of_other_code_are_not_taken_over(column: str, value: str, tmp_path: Path) -> None:
    first = ran(points("first"), tmp_path)
    for row in first.folder.table("trials").to_pylist():
        first.folder.append("trials", [without(row, "revision") | {column: value}])
    assert not reusable_runs(points("second"), Store.open(str(tmp_path)), DIGEST, "cpu").runs


def test_trials_that_did_not_end_or_changed_their_config_are_not_taken_over(tmp_path: Path) -> None:
    first = Driver(points("first"), tmp_path)
    first.finish(first.start())
    first.recorder.event("exploited", "t0000")
    first.start()
    first.die()
    assert not reusable_runs(points("second"), Store.open(str(tmp_path)), DIGEST, "cpu").runs


def test_a_study_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    ran(points("first"), tmp_path)
    broken = ran(points("broken", seeds=[5]), tmp_path)
    broken.folder.write("trials/bad.parquet", b"no table")
    odd = ran(points("odd", seeds=[6]), tmp_path)
    odd.folder.write(DATA_FILE, b"{")
    found = reusable_runs(points("second"), Store.open(str(tmp_path)), DIGEST, "cpu").runs
    assert {run.study for runs in found.values() for run in runs} == {"first"}


CONFIRMED: dict[str, Any] = {"confirm": {"configs": 1, "runs": 2}}


def confirmed(driver: Driver) -> dict[str, Any]:
    return {name: row["reused_from"] for name, row in rows(driver.folder).items() if name.startswith("c")}


def test_a_confirmation_takes_over_the_confirmation_of_another_study(tmp_path: Path) -> None:
    ran(points("first", **CONFIRMED), tmp_path)
    second = ran(points("second", **CONFIRMED), tmp_path)
    assert second.trained == []
    assert confirmed(second) and all(name == f"first/{c}" for c, name in confirmed(second).items())


def test_a_confirmation_takes_nothing_from_a_study_that_searched_on_its_pair(tmp_path: Path) -> None:
    searched = {"seeds": [0, 1], "label_splits": [0, 1], "confirm": {"configs": 0, "runs": 0}}
    ran(points("first", **searched), tmp_path)
    second = ran(points("second", confirm={"configs": 1, "runs": 1}), tmp_path)
    assert confirmed(second) and set(confirmed(second).values()) == {None}
    assert all(row["reused_from"] for name, row in rows(second.folder).items() if name.startswith("t"))


def test_a_confirmation_takes_nothing_over_where_earlier_studies_guide_the_search(tmp_path: Path) -> None:
    pairs = points("second", search_from=["first"], **CONFIRMED).confirm_pairs
    given = {"seeds": [pair[0] for pair in pairs], "label_splits": [pair[1] for pair in pairs]}
    ran(points("first"), tmp_path)
    ran(points("third", confirm={"configs": 1, "runs": 2, **given}), tmp_path)  # which guides nobody
    second = ran(points("second", search_from=["first"], **CONFIRMED), tmp_path)
    assert confirmed(second) and set(confirmed(second).values()) == {None}
    assert all(row["reused_from"] for name, row in rows(second.folder).items() if name.startswith("t"))


@pytest.mark.parametrize("lost", ["all", "rows"])
def test_a_driver_that_dies_while_it_takes_runs_over_leaves_nothing_twice(lost: str, tmp_path: Path) -> None:
    ran(points("first", **CONFIRMED), tmp_path)
    config = points("second", search={"loss.weights.lb": [0.5, 2.0, 2.5]}, **CONFIRMED)
    driver = Driver(config, tmp_path)
    asked = driver.agenda.following()  # takes over what comes before it
    assert isinstance(asked, Assignment)
    if lost == "rows":  # the tables are written one after the other
        driver.folder.append("metrics", driver.recorder._queue.metrics)
    driver.recorder._queue = type(driver.recorder._queue)()
    driver.die()
    again = ran(config, tmp_path)
    found = rows(again.folder)
    assert {row["state"] for row in found.values()} == {"completed"}
    runs = [(row["role"], row["config_id"], *pair_of(row)) for row in found.values()]
    assert len(set(runs)) == len(runs)
    assert [found[name]["loss_weights_lb"] for name in again.trained] == [2.5]
    for name in found:
        assert [step for step, *_ in curve(again.folder, name)] == [10, 20, 30, 40]
    told = again.sampling.trials()
    assert all(trial.state.is_finished() for trial in told.values()) and told.keys() <= found.keys()
    finished = ran(config, tmp_path)
    assert finished.trained == [] and rows(finished.folder) == found


def test_a_trial_with_a_checkpoint_goes_on_from_there(tmp_path: Path) -> None:
    config = points("second")
    interrupted = Driver(config, tmp_path)
    paper = interrupted.start()
    interrupted.ledger.reported(paper, {"step": 10, "validation_error": 0.5, "device": "cpu"})
    interrupted.folder.write(f"checkpoints/{paper.trial}/1/{10:09d}.pt", b"weights")
    interrupted.die()
    ran(points("first"), tmp_path)
    again = Driver(config, tmp_path)
    upcoming = again.agenda.following()
    again.die()
    assert isinstance(upcoming, Assignment) and (upcoming.trial, bool(upcoming.resume)) == ("t0000", True)


def on_ray(config: StudyConfig, where: Path, **options: Any) -> StudyFolder:
    begin(config, Store.open(str(where)))
    progress, folder = run(config, where, **options)
    assert progress.stage == "finished"
    return folder


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("scheduler", ["asha", "race"])
def test_a_study_on_ray_trains_only_what_the_store_does_not_hold(scheduler: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"training": {"steps": 20}, "search": POINTS, "sampler": "grid"}
    given |= {"confirm": {"configs": 1, "runs": 1}, "scheduler": {"name": scheduler}}
    first = on_ray(study(name="first", **{**given, "scheduler": "none"}), tmp_path)
    same = on_ray(study(name="same", **given), tmp_path, body=refuses)
    made, taken = rows(first), rows(same)
    assert len(made) > 4
    for name, row in taken.items():
        assert row["reused_from"] == f"first/{name}" and row["wall_s"] == 0
        assert (row["config_id"], row["objective"]) == (made[name]["config_id"], made[name]["objective"])
    wider = {**given, "search": {"loss.weights.lb": [0.5, 2.0, 3.0]}, "budget": {"trials": 5}}
    more = rows(on_ray(study(name="more", **wider), tmp_path)).values()
    own = [row for row in more if row["role"] == "search" and not row["reused_from"]]
    assert [row["loss_weights_lb"] for row in own] == [3.0]
    model = export_model(same, tmp_path / "model", "t0000")  # which first has trained
    assert (model.about.study, model.about.trial) == ("same", "t0000")


def test_what_is_reused_says_so(tmp_path: Path, cbe_: Cbe) -> None:
    for name in ("first", "second"):
        ran(points(name), tmp_path)
    where = ("--store", str(tmp_path))
    assert "first/t0002" in cbe_("show", "second", *where).out
    assert "reused from" not in cbe_("show", "first", *where).out
    one = " ".join(cbe_("show", "second/t0002", *where).out.split())
    assert "reused from first/t0002, at no cost" in one
    log = cbe_("logs", "second/t0002", *where)
    assert log.code == 2 and "see the log of first/t0002" in " ".join(log.err.split())
    cbe_("report", "second", *where, "--out", str(tmp_path / "report.html"))
    assert "reused from first/t0002" in (tmp_path / "report.html").read_text()
