"""What `cbe.open_store` gives: tables, answers across studies, and reading while others write."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import boto3
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cbe
from cbe.errors import InputError
from tests.made import Made, whole
from tests.waiting import until


def test_tables_come_as_arrow_pandas_or_polars(tmp_path: Path) -> None:
    whole(tmp_path, "first")
    kinds = {"arrow": pa.Table, "pandas": pd.DataFrame, "polars": pl.DataFrame}
    for frames, kind in kinds.items():
        results = cbe.open_store(str(tmp_path), frames)  # type: ignore[arg-type]
        assert isinstance(results.trials(), kind)
        assert isinstance(results.metrics("first/t0000"), kind)
        assert isinstance(results.sql("select 1 as one"), kind)
    with pytest.raises(InputError, match="wanted arrow, pandas, polars"):
        cbe.open_store(str(tmp_path), "excel")  # type: ignore[arg-type]


def test_trials_and_metrics_are_those_asked_for(tmp_path: Path) -> None:
    for name in ("first", "second"):
        whole(tmp_path, name)
    results = cbe.open_store(str(tmp_path))
    assert results.studies() == ["first", "second"]
    assert len(results.trials()) == 48
    failed = results.trials("first", ["trial"], pc.field("state") == "failed")
    assert failed.to_pydict() == {"trial": ["t0014"]}
    curve = results.metrics("second/t0000")
    assert curve["step"].to_pylist() == [50, 100, 150, 200, 250, 300]
    assert set(curve["study"].to_pylist()) == {"second"}
    assert results.metrics("first/t0014").num_rows == 0  # it failed before its first report


def test_metrics_of_a_study_are_the_rows_of_all_its_trials(tmp_path: Path) -> None:
    for name in ("first", "second"):
        whole(tmp_path, name)
    results = cbe.open_store(tmp_path)
    rows = results.metrics("first")
    assert set(rows["study"].to_pylist()) == {"first"} and len(set(rows["trial"].to_pylist())) > 20
    assert rows.equals(results.metrics(study="first"))
    assert results.metrics("t0000", study="first").equals(results.metrics("first/t0000"))
    assert results.metrics().num_rows == 2 * rows.num_rows


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(cbe) == sorted(cbe.__all__)
    assert all(getattr(cbe, name) for name in cbe.__all__)


def test_a_store_that_is_not_there_is_told_with_what_is_wanted(tmp_path: Path) -> None:
    whole(tmp_path, "first")
    (tmp_path / "file").touch()
    wanted = "wanted the folder that holds your studies, or a bucket as s3://bucket/prefix"
    for place, says in {
        tmp_path / "nowhere": f"there is no such folder; {wanted}; check the path, or run a study first",
        tmp_path / "file": f"is a file; {wanted}; check the path",
        tmp_path / "first": f"is the folder of one study; {wanted}; give {tmp_path}",
    }.items():
        with pytest.raises(InputError) as told:
            cbe.open_store(place)
        assert str(told.value) == f"store {place}: {says}"


def test_running_a_study_that_exists_is_refused_and_a_finished_one_is_answered(tmp_path: Path) -> None:
    folder = whole(tmp_path, "first").folder
    config = folder.config()
    assert config is not None
    with pytest.raises(InputError, match="exists already; continue it with resume=True"):
        cbe.run(config, tmp_path)
    with pytest.raises(InputError, match=r"training\.lr: stored is"):
        cbe.run({**config.to_plain(), "training": {"lr": 0.5}}, tmp_path)
    folder.write("status.json", b'{"state": "finished"}')
    done = cbe.run(config.to_plain(), tmp_path, resume=True)
    assert done.stop_reason is None
    assert done.best() == cbe.open_store(tmp_path).best("first")
    assert done.trials().num_rows == 24 and done.metrics().num_rows


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        ("t0000", "wanted STUDY/TRIAL"),
        ("frist", "did you mean first?"),
        ("first/t9999", "none of that name"),
        ("frist/t0000", "did you mean first?"),
    ],
)
def test_a_trial_that_is_not_there_is_told(tmp_path: Path, trial: str, says: str) -> None:
    whole(tmp_path, "first")
    with pytest.raises(InputError) as told:
        cbe.open_store(str(tmp_path)).metrics(trial)
    assert says in str(told.value)


WRITER = """
import sys
from cbe.store.folder import Store
from cbe.store.recorder import Recorder

folder = Store.open(sys.argv[1]).study("made")
recorder = Recorder(folder, flush_s=0.001)
for number in range(200):
    name = f"t{number:04d}"
    for state in ("running", "completed"):
        recorder.trial(name, role="search", state=state, config_id="a", seed=number, label_split=0,
                       objective=0.5, last_validation_error=0.5)
        recorder.metrics(name, {"step": 1 if state == "running" else 2, "validation_error": 0.5})
    recorder.flush()
    if number % 16 == 15:
        for table in ("trials", "metrics"):
            folder.compact(table, grace_s=1.0)
    print(number + 1, flush=True)
recorder.close()
"""


def test_a_reader_of_a_study_in_writing_sees_every_committed_row_once(tmp_path: Path) -> None:
    made = Made(tmp_path)
    results = cbe.open_store(str(tmp_path))
    committed = looks = 0
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:

        def listen() -> None:
            nonlocal committed
            assert writer.stdout is not None
            for line in writer.stdout:
                committed = int(line)

        listener = threading.Thread(target=listen)
        listener.start()
        while listener.is_alive():
            for look in (_by_table, _by_sql, _by_answer):
                before = committed
                trials, completed, reports = look(results)
                assert trials >= before, f"{before} were written, {look.__name__} found {trials}"
                assert completed >= before
                assert reports is None or reports >= 2 * before
            looks += 1
        listener.join()
    assert writer.returncode == 0
    assert looks > 3
    assert committed == 200
    assert _by_table(results) == _by_sql(results) == (200, 200, 400)
    files = tmp_path / "made" / "trials"
    left = len(list(files.iterdir()))
    assert left < 200, left  # of a file for each trial, and the merged ones: some were removed meanwhile

    def is_merged() -> bool:
        made.folder.compact("trials", grace_s=1.0)
        return len(list(files.iterdir())) < 100

    until(is_merged, what="the removal of what was merged last")
    assert _by_table(results) == _by_sql(results) == (200, 200, 400)


def _by_table(results: cbe.report.results.Results) -> tuple[int, int, int | None]:
    trials, metrics = results.trials("made", ["trial", "state"]), results.metrics(study="made")
    assert len(pc.unique(trials["trial"])) == len(trials)
    assert len(metrics.group_by(["trial", "step"]).aggregate([])) == len(metrics)
    return len(trials), trials["state"].to_pylist().count("completed"), len(metrics)


def _by_sql(results: cbe.report.results.Results) -> tuple[int, int, int | None]:
    (row,) = results.sql(
        """select count(*) as n, count(distinct trial) as names,
        count(*) filter (state = 'completed') as done from trials"""
    ).to_pylist()
    assert row["n"] == row["names"]
    (reports,) = results.sql(
        "select count(*) as n, count(distinct (trial, step)) as d from metrics"
    ).to_pylist()
    assert reports["n"] == reports["d"]
    return row["n"], row["done"], reports["n"]


def _by_answer(results: cbe.report.results.Results) -> tuple[int, int, int | None]:
    try:
        (task,) = results.best_of_all()
    except InputError:  # nothing has ended yet
        return 0, 0, None
    return task.ranked[0].n, task.ranked[0].n, None


def test_a_bucket_is_read_like_a_folder(ambient: None, s3_port: int) -> None:
    address = f"127.0.0.1:{s3_port}"
    boto3.client("s3", endpoint_url=f"http://{address}").create_bucket(Bucket="answers")
    place = f"s3://answers/studies?endpoint_override={address}&scheme=http"
    made = whole(place, "first")
    made.folder.compact("trials")
    results = cbe.open_store(place)
    assert results.studies() == ["first"]
    assert results.best("first").ranked[0].mean == pytest.approx(0.064)
    assert results.sql("select count(*) as n from trials").to_pylist() == [{"n": 24}]
    assert results.best_of_all()[0].ranked[0].mean == pytest.approx(0.064)


def test_running_a_study_refuses_unknown_frames_before_anything_is_stored(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"frames 'panda': wanted arrow, pandas, polars"):
        cbe.run({"name": "first"}, tmp_path / "results", frames="panda")  # type: ignore[arg-type]
    assert not (tmp_path / "results").exists()
