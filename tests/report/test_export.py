"""A study's tables for other programs: the same rows, whole or not there."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path

import optuna
import pyarrow.parquet as pq
import pytest

from cbe.errors import InputError, RunError
from cbe.report import export as exporting
from cbe.report.export import Format, export
from cbe.store.schema import TABLES
from tests.conftest import Cbe, small_files
from tests.made import Made, whole

ALL: tuple[Format, ...] = ("csv", "parquet", "optuna")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return whole(tmp_path / "results")


def read(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10**9)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_parquet_has_every_latest_row_once_in_order(made: Made, tmp_path: Path) -> None:
    made.folder.append("trials", [{"trial": "t0000", "state": "failed"}])  # a later revision
    done = export(made.folder, "parquet", tmp_path / "out")
    for name, table in TABLES.items():
        found, stored = pq.read_table(tmp_path / "out" / f"{name}.parquet"), made.folder.table(name)
        assert found.schema.equals(table.schema)
        keys = [tuple(row.values()) for row in found.select(list(table.key)).to_pylist()]
        assert keys == sorted(set(keys))
        assert found.equals(stored.sort_by([(key, "ascending") for key in table.key]))
        assert done.rows[name] == len(stored) == len(found)
    trials = {row["trial"]: row for row in pq.read_table(tmp_path / "out" / "trials.parquet").to_pylist()}
    assert trials["t0000"]["state"] == "failed"


def test_csv_has_lists_as_json_and_times_in_iso(made: Made, tmp_path: Path) -> None:
    made.folder.append("metrics", [{"trial": "t9999", "step": 1, "thresholds": [0.5, None, float("nan")]}])
    export(made.folder, "csv", tmp_path / "out")
    stored = made.folder.table("metrics").sort_by([("trial", "ascending"), ("step", "ascending")]).to_pylist()
    found = read(tmp_path / "out" / "metrics.csv")
    assert [(row["trial"], int(row["step"])) for row in found] == [
        (row["trial"], row["step"]) for row in stored
    ]
    assert float(found[0]["loss"]) == stored[0]["loss"]
    assert json.loads(found[0]["thresholds"]) == stored[0]["thresholds"]
    assert datetime.fromisoformat(found[0]["time"]) == stored[0]["time"]
    assert found[-1]["loss"] == found[-1]["time"] == ""
    assert json.loads(found[-1]["thresholds"]) == [0.5, None, None]
    (failed,) = (row for row in read(tmp_path / "out" / "trials.csv") if row["state"] == "failed")
    assert failed["error_text"] == "loss is not finite at step 12 <script>alert(1)</script>"
    assert len(json.loads(read(tmp_path / "out" / "confusions.csv")[0]["matrix"])) == 10


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_a_table_read_some_trials_at_a_time_is_the_same(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: Format
) -> None:
    export(made.folder, to, tmp_path / "at-once")
    monkeypatch.setattr(exporting, "_CELLS", 500)
    monkeypatch.setattr(exporting, "_BATCH", 3)
    assert len(list(exporting._portions(made.folder, TABLES["metrics"]))) > 2
    export(made.folder, to, tmp_path / "in-parts")
    for name in TABLES:
        one, other = (tmp_path / folder / f"{name}.{to}" for folder in ("at-once", "in-parts"))
        if to == "csv":
            assert one.read_text("utf-8") == other.read_text("utf-8")
        else:
            assert pq.read_table(one).equals(pq.read_table(other))


def test_events_are_in_the_order_of_time(made: Made, tmp_path: Path) -> None:
    times = [datetime.fromisoformat(f"2026-05-04T12:00:0{second}+00:00") for second in (3, 1, 2)]
    made.folder.append("events", [{"id": str(n), "time": time, "kind": "x"} for n, time in enumerate(times)])
    export(made.folder, "csv", tmp_path / "out")
    assert [row["id"] for row in read(tmp_path / "out" / "events.csv")] == ["1", "2", "0"]


def test_optuna_opens_the_search_with_its_curves_and_times(made: Made, tmp_path: Path) -> None:
    done = export(made.folder, "optuna", tmp_path / "made.db")
    study = optuna.load_study(study_name="made", storage=f"sqlite:///{tmp_path / 'made.db'}")
    rows = {row["trial"]: row for row in made.folder.table("trials").to_pylist()}
    trials = {trial.user_attrs["trial"]: trial for trial in study.trials}
    assert done.rows == {"trials": len(trials)}
    assert done.left_out + len(trials) == len(rows)
    assert not any(name.startswith("c") for name in trials)
    assert study.directions == [optuna.study.StudyDirection.MINIMIZE]
    assert study.metric_names == ["validation_error"]
    best = study.best_trial
    row = rows[best.user_attrs["trial"]]
    assert best.value == row["objective"] == 0.05
    assert best.params == {"ensemble.heads": 4, "loss.weights.lb": 1.0}
    assert best.user_attrs["config_id"] == row["config_id"]
    assert sorted(best.intermediate_values) == [50, 100, 150, 200, 250, 300]
    assert best.intermediate_values[300] == 0.05
    assert best.datetime_start is not None and best.datetime_start.astimezone() == row["started"]
    assert best.datetime_complete is not None and best.datetime_complete.astimezone() == row["updated"]
    states = {trial.state.name for trial in trials.values()}
    assert states == {"COMPLETE", "PRUNED", "FAIL"}


def test_optuna_opens_a_study_of_several_objectives(tmp_path: Path) -> None:
    made = Made(tmp_path, objective=["validation_error", "macs"])
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0})
    export(made.folder, "optuna", tmp_path / "made.db")
    study = optuna.load_study(study_name="made", storage=f"sqlite:///{tmp_path / 'made.db'}")
    assert study.best_trials[0].values == [0.1, 5_040_000.0]


@pytest.mark.parametrize("to", ALL)
def test_what_is_there_is_not_overwritten(made: Made, tmp_path: Path, to: Format) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(InputError, match="there: is there already; remove it, or give another -o"):
        export(made.folder, to, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.parametrize("to", ALL)
def test_nothing_is_left_of_an_export_that_fails(made: Made, tmp_path: Path, to: Format) -> None:
    target = tmp_path / "out" / "o[u]t"
    target.parent.mkdir()
    with small_files(3000), pytest.raises(RunError, match="could not be written"):
        export(made.folder, to, target)
    assert list(target.parent.iterdir()) == []
    export(made.folder, to, target)
    assert list(target.parent.iterdir()) == [target]


def test_an_export_into_a_folder_that_is_not_there_is_refused(made: Made, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        export(made.folder, "csv", tmp_path / "no" / "out")
    with pytest.raises(InputError, match="wanted a local path"):
        export(made.folder, "csv", "s3://bucket/out")


def test_a_study_without_trials_exports_empty_tables(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for to in ALL:
        assert sum(export(made.folder, to, tmp_path / f"out-{to}").rows.values()) == 0
    assert read(tmp_path / "out-csv" / "metrics.csv") == []


def test_the_command_says_what_it_wrote_and_how_to_look_at_it(made: Made, tmp_path: Path, cbe_: Cbe) -> None:
    done = cbe_("export", "made", "--to", "csv")
    assert (done.code, done.out) == (0, "")
    assert "made-csv: rows of trials 24, metrics" in done.err
    assert (tmp_path / "made-csv" / "trials.csv").exists()
    done = cbe_("export", "made", "--to", "optuna")
    assert "made.db: 13 trials; 11 trials left out" in done.err
    assert "optuna-dashboard sqlite:///made.db" in done.err
    assert cbe_("export", "made", "--to", "csv").code == 2
    assert "did you mean made?" in cbe_("export", "mode", "--to", "csv").err
