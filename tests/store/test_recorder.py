"""The recorder: nothing noted is lost while a process lives, and nothing flushed when it dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.compute as pc
import pytest
from pyarrow import fs

from cbe.errors import RunError
from cbe.store.clock import tick
from cbe.store.folder import Store, StudyFolder
from cbe.store.location import Location
from cbe.store.reader import MERGED
from cbe.store.recorder import MOST_FILES, Recorder
from cbe.store.redact import redact, redacted_json
from tests.conftest import small_files

NEVER = 3600.0  # flush_s where a test decides itself when rows are written


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return Store.open(str(tmp_path / "results")).study("first")


@pytest.fixture
def recorder(folder: StudyFolder) -> Iterator[Recorder]:
    made = Recorder(folder, flush_s=NEVER)
    yield made
    made.close()


def trial(folder: StudyFolder, name: str) -> dict[str, Any]:
    (row,) = folder.table("trials", where=pc.field("trial") == name).to_pylist()
    return row


def reports(folder: StudyFolder, name: str, figure: str = "loss") -> dict[int, float]:
    found = folder.table("metrics", ["step", figure], pc.field("trial") == name).to_pylist()
    assert len({row["step"] for row in found}) == len(found)
    return {row["step"]: row[figure] for row in found}


def report(step: int, **figures: Any) -> dict[str, Any]:
    return {"step": step, "loss": float(step), **figures}


def test_a_trial_row_is_what_its_calls_said_together(recorder: Recorder, folder: StudyFolder) -> None:
    started = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    recorder.trial("a", state="running", role="search", seed=2**63 - 1, started=started)
    recorder.trial("a", values=[np.float32(0.5), 2**60, None], macs=np.int64(7), ensemble_heads=5)
    recorder.trial("b", state="running")
    recorder.trial("a", state="completed", objective=1, step=None)
    recorder.flush()
    row = trial(folder, "a")
    assert (row["study"], row["state"], row["role"]) == ("first", "completed", "search")
    assert (row["seed"], row["macs"], row["ensemble_heads"], row["objective"]) == (2**63 - 1, 7, 5, 1.0)
    assert row["values"] == [0.5, 2.0**60, None] and row["started"] == started
    assert abs((row["updated"] - datetime.now(UTC)).total_seconds()) < 600
    assert trial(folder, "b")["state"] == "running"
    assert recorder.rows.keys() == {"a", "b"} and recorder.rows["a"] == row


def test_a_row_that_was_given_out_never_changes(recorder: Recorder) -> None:
    recorder.trial("a", state="running")
    before, copied = recorder.rows["a"], dict(recorder.rows["a"])
    recorder.trial("a", state="completed")
    assert before == copied and recorder.rows["a"]["state"] == "completed"
    with pytest.raises(TypeError):
        recorder.rows["b"] = {}  # type: ignore[index]


@pytest.mark.parametrize(
    "columns",
    [
        {"colour": "red"},
        {"seed": 0.5},
        {"seed": True},
        {"seed": 2**63},
        {"objective": "0.5"},
        {"state": 3},
        {"started": 0.5},
        {"started": datetime(2026, 1, 1)},
        {"values": 0.5},
        {"values": ["x"]},
        {"data_labeled_in_unlabeled": 1},
    ],
)
def test_a_value_that_its_column_cannot_hold_is_refused_at_the_call(
    recorder: Recorder, folder: StudyFolder, columns: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=next(iter(columns))):
        recorder.trial("a", **columns)
    recorder.flush()
    assert recorder.rows == {} and folder.table("trials").num_rows == 0


def test_a_report_is_kept_with_its_confusions_and_what_is_unknown_is_ignored(
    recorder: Recorder, folder: StudyFolder
) -> None:
    matrices = {"confusion": [[1.0, 2.0], [0.0, 3.0]], "pseudo_confusion": [[4, 0], [0, 5]]}
    recorder.metrics("a", report(10, thresholds=[0.5, 0.25], wall_s=3, trial_id="x", **matrices))
    recorder.metrics("a", report(20, thresholds=None, confusion=None))
    recorder.flush()
    assert reports(folder, "a") == {10: 10.0, 20: 20.0}
    assert reports(folder, "a", "thresholds") == {10: [0.5, 0.25], 20: None}
    assert reports(folder, "a", "wall_s") == {10: 3.0, 20: None}
    found = {row["kind"]: row["matrix"] for row in folder.table("confusions").to_pylist()}
    assert found == {"validation": matrices["confusion"], "pseudo": matrices["pseudo_confusion"]}
    assert recorder.recorded_step("a") == 20 and recorder.recorded_step("b") == 0


def test_a_step_is_recorded_once_unless_it_is_replaced(recorder: Recorder, folder: StudyFolder) -> None:
    recorder.metrics("a", report(10))
    recorder.metrics("a", report(10, loss=7.0))
    recorder.flush()
    recorder.metrics("a", report(10, loss=8.0, confusion=[[1.0]]))
    recorder.metrics("b", report(10, loss=9.0))
    recorder.flush()
    assert reports(folder, "a") == {10: 10.0} and reports(folder, "b") == {10: 9.0}
    assert folder.table("confusions").num_rows == 0
    recorder.metrics("a", report(10, loss=0.5), replace=True)
    recorder.flush()
    assert reports(folder, "a") == {10: 0.5}


def test_a_row_wins_over_one_that_a_faster_clock_has_written(folder: StudyFolder) -> None:
    ahead = tick() + 3600 * 10**9
    folder.append("trials", [{"trial": "a", "state": "running", "seed": 4, "revision": ahead}])
    folder.append("metrics", [{"trial": "a", "step": 1, "loss": 1.0, "revision": ahead + 5}])
    recorder = Recorder(folder, flush_s=NEVER)
    rows = recorder.rows
    recorder.load()
    recorder.trial("a", state="completed")
    recorder.metrics("a", report(1, loss=2.0), replace=True)
    recorder.close()
    assert rows["a"]["seed"] == 4
    assert trial(folder, "a")["state"] == "completed" and reports(folder, "a") == {1: 2.0}


def test_rows_reach_the_store_without_being_asked_for(folder: StudyFolder) -> None:
    before = set(threading.enumerate())
    recorder = Recorder(folder, flush_s=0.01)
    recorder.trial("a", state="running")
    recorder.event("started", "a")
    deadline = time.monotonic() + 60
    while not (folder.table("trials").num_rows and folder.table("events").num_rows):
        assert time.monotonic() < deadline
    recorder.close()
    recorder.close()
    assert recorder.problem is None
    assert set(threading.enumerate()) <= before


def test_a_reader_never_sees_a_trial_completed_before_its_reports(folder: StudyFolder) -> None:
    recorder = Recorder(folder, flush_s=0.001)
    for number in range(40):
        for step in (1, 2):
            recorder.metrics(f"t{number}", report(step, confusion=[[1.0]]))
        recorder.trial(f"t{number}", state="completed")
        completed = folder.table("trials", ["trial"])["trial"].to_pylist()
        for table in ("metrics", "confusions"):
            there = folder.table(table, ["trial"], pc.field("step") == 2)["trial"].to_pylist()
            assert set(completed) <= set(there)
    recorder.close()
    assert folder.table("trials").num_rows == 40


def test_while_reports_cannot_be_written_no_trial_row_is(recorder: Recorder, folder: StudyFolder) -> None:
    recorder.metrics("a", report(1))
    recorder.trial("a", state="completed")
    obstacle = Path(folder.path("metrics"))
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    recorder.flush()
    assert recorder.problem is not None and str(obstacle) in recorder.problem
    assert folder.table("trials").num_rows == 0
    obstacle.unlink()
    recorder.flush()
    assert recorder.problem is None
    assert trial(folder, "a")["state"] == "completed" and reports(folder, "a") == {1: 1.0}


def test_a_full_disk_keeps_rows_in_memory_until_there_is_space(folder: StudyFolder) -> None:
    recorder = Recorder(folder, flush_s=NEVER)
    recorder.trial("a", state="running")
    recorder.flush()
    recorder.metrics("a", report(1))
    recorder.trial("a", state="pruned")
    with small_files(1000):
        recorder.flush()
        assert recorder.problem is not None
        assert "could not be written (File too large); free some space" in recorder.problem
        recorder.trial("a", state="completed")
        recorder.event("ended", "a")
        with pytest.raises(RunError, match=r"first: 4 rows could not be written: .*File too large"):
            recorder.close()
    assert trial(folder, "a")["state"] == "running"
    assert [path.name for path in Path(folder.uri).rglob(".*")] == []
    recorder.close()
    assert recorder.problem is None
    assert trial(folder, "a")["state"] == "completed" and reports(folder, "a") == {1: 1.0}
    kinds = folder.table("events").sort_by("time")["kind"].to_pylist()
    assert kinds == ["store_unreachable", "ended", "store_back"]


def test_a_row_noted_while_a_write_fails_stays_the_latest(tmp_path: Path) -> None:
    class Failing(fs.FSSpecHandler):
        """Local files; something is noted during the first write, which fails."""

        during: Callable[[], None] | None = None

        def open_output_stream(self, path: str, metadata: Any) -> Any:
            if self.during is not None:
                act, self.during = self.during, None
                act()
                raise OSError("out of order")
            return super().open_output_stream(path, metadata)

    handler = Failing(fsspec.filesystem("file", auto_mkdir=True))
    folder = StudyFolder("first", Location(fs.PyFileSystem(handler), str(tmp_path / "first")))
    recorder = Recorder(folder, flush_s=NEVER)
    handler.during = lambda: recorder.trial("a", state="completed")
    recorder.trial("a", state="running")
    recorder.flush()
    assert recorder.problem is not None and "out of order" in recorder.problem
    recorder.close()
    assert recorder.rows["a"]["state"] == trial(folder, "a")["state"] == "completed"


def test_a_row_that_cannot_be_stored_holds_up_no_other(folder: StudyFolder) -> None:
    recorder = Recorder(folder, flush_s=NEVER)
    recorder.metrics("a", report(1, confusion=[["x"]]))
    recorder.metrics("a", report(2, confusion=[[1.0]]))
    recorder.trial("a", state="completed")
    recorder.flush()
    assert folder.table("confusions")["step"].to_pylist() == [2]
    assert reports(folder, "a") == {1: 1.0, 2: 2.0} and trial(folder, "a")["state"] == "completed"
    assert recorder.problem is not None and "table confusions, trial a, step 1" in recorder.problem
    with pytest.raises(RunError, match="1 rows could not be written: table confusions, trial a, step 1"):
        recorder.close()


def test_many_files_are_merged_on_the_way(folder: StudyFolder) -> None:
    recorder = Recorder(folder, flush_s=0.001)
    deadline, step = time.monotonic() + 100, 0
    while not any(name.endswith(MERGED) for name in folder.list("metrics")):
        assert time.monotonic() < deadline
        step += 1
        recorder.metrics("a", report(step))
        recorder.flush()
    recorder.close()
    assert step > MOST_FILES / 2
    assert reports(folder, "a") == {number: float(number) for number in range(1, step + 1)}


def test_calls_from_several_threads_lose_nothing(folder: StudyFolder) -> None:
    recorder = Recorder(folder, flush_s=0.001)

    def work(name: str) -> None:
        for step in range(1, 101):
            recorder.metrics(name, report(step))
            recorder.trial(name, step=step)
            recorder.event("reported", name, step=step)
            recorder.rows.copy()  # type: ignore[attr-defined]

    threads = [threading.Thread(target=work, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert all(reports(folder, name).keys() == set(range(1, 101)) for name in "abcd")
    assert {row["trial"]: row["step"] for row in folder.table("trials").to_pylist()} == dict.fromkeys(
        "abcd", 100
    )
    assert folder.table("events").num_rows == 400


WRITER = """
import sys
from cbe.store.folder import Store
from cbe.store.recorder import Recorder

recorder = Recorder(Store.open(sys.argv[1]).study("first"), flush_s=0.001).load()
step = recorder.recorded_step("a")
while True:
    step += 1
    matrix = [[float(step)] * 10] * 10
    matrices = {"confusion": matrix, "pseudo_confusion": matrix}
    recorder.metrics("a", {"step": step, "loss": float(step), **matrices})
    recorder.trial("a", step=step, state="running")
    recorder.flush()
    assert recorder.problem is None
    print(step, flush=True)
"""


def test_after_a_kill_in_the_middle_of_flushing_all_that_was_flushed_is_there(folder: StudyFolder) -> None:
    last = 0
    for moment in range(6):
        command = [sys.executable, "-c", WRITER, str(Path(folder.uri).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(1 + 5 * moment):
                last = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            last = max([last, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        step = trial(folder, "a")["step"]
        assert step >= last
        losses = reports(folder, "a")
        assert losses == {number: float(number) for number in range(1, max(losses) + 1)}
        assert max(losses) >= step
        for row in folder.table("confusions", where=pc.field("step") <= step).to_pylist():
            assert row["matrix"] == [[float(row["step"])] * 10] * 10
        assert folder.table("confusions", where=pc.field("step") <= step).num_rows == 2 * step
        last = step


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("key AKIAIOSFODNN7EXAMPLE is wrong", "key *** is wrong"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "***"),
        ("aws_secret_access_key = abc/def+1", "aws_secret_access_key = ***"),
        ("AWS_SESSION_TOKEN=FwoGZX== and more", "AWS_SESSION_TOKEN=*** and more"),
        ("Authorization: Basic dXNlcjpwYXNz\nnext", "Authorization: ***\nnext"),
        ("sent 'Bearer eyJhbGciOi.J9-_x'", "sent 'Bearer ***'"),
        ("https://h/x?token=abc&size=3", "https://h/x?token=***&size=3"),
        ("X-Amz-Signature=0123abc&X-Amz-Date=1", "X-Amz-Signature=***&X-Amz-Date=1"),
        ("{'password': 'a b, c', 'user': 'me'}", "{'password': ***, 'user': 'me'}"),
        ("postgresql://me:p@ss:w@db/optuna", "postgresql://***@db/optuna"),
        ("redis://:secret@h:6379", "redis://***@h:6379"),
    ],
)
def test_secrets_are_masked(text: str, wanted: str) -> None:
    assert redact(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "loss is not finite at step 20 (loss nan); try a smaller training.lr",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "s3://bucket/key: cannot be read; mail someone@example.org",
        'File "/data/tokens/tokenizer.py", line 3, in split_tokens',
        "/mnt/data/images/fashion/train/0001.parquet",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("piece", ["a", "token", "a://", "/+aA1", "secret-", "bearer ", "=' ", 'token="'])
def test_a_long_text_is_masked_to_its_end(piece: str) -> None:
    text = redact(piece * (400_000 // len(piece)) + "\n redis://:SECRET@h password=SECRET")
    assert text.endswith("redis://***@h password=***") and "SECRET" not in text


def test_secrets_reach_neither_the_store_nor_a_live_view(recorder: Recorder, folder: StudyFolder) -> None:
    recorder.trial(
        "a", state="failed", error_class="OSError", error_text="GET s3://k:SECRET@b\udcff: token=SECRET"
    )
    nested = {"urls": ["http://u:SECRET@h"], "api_key": "SECRET", "path": Path("/x"), "loss": float("nan")}
    recorder.event("failed", "a", error=ValueError("password=SECRET"), env=nested, tokens=5)
    assert "SECRET" not in str(recorder.rows["a"])
    recorder.flush()
    assert recorder.problem is None
    assert trial(folder, "a")["error_text"] == "GET s3://***@b?: token=***"
    (details,) = folder.table("events")["details"].to_pylist()
    assert json.loads(details) == {
        "error": "password=***",
        "env": {"urls": ["http://***@h"], "api_key": "***", "path": "/x", "loss": "nan"},
        "tokens": 5,
    }
    assert redacted_json({}) == "{}"
