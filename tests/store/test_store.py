"""The Parquet store: what a reader sees while others write, merge and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cbe.errors import InputError, RunError
from cbe.spec.identity import column_types
from cbe.store import compact
from cbe.store.clock import catch_up, tick
from cbe.store.folder import Store, StudyFolder
from cbe.store.run_folder import SCHEMA
from cbe.store.schema import METRICS, TABLES, TRIALS, build
from tests.conftest import small_files
from tests.store.tables import add, steps

BAD_NAMES = (
    "",
    "..",
    "../x",
    "a/b",
    "/etc",
    "A",
    ".x",
    "-x",
    "a..b",
    "a b",
    "ä",
    "a\n",
    "x" * 65,
    "a\\b",
    "~",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_study_name_that_is_no_plain_name_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="small letters, digits"):
        Store.open(str(tmp_path)).study(name)


@pytest.mark.parametrize(
    "relative", ["", "..", "../other/study.yaml", "a/../../b", "/etc/passwd", "a\\b", "a\0"]
)
def test_nothing_outside_its_folder_can_be_reached_through_a_study(
    folder: StudyFolder, relative: str
) -> None:
    for act in (folder.path, folder.read, folder.delete, folder.list, lambda path: folder.write(path, b"")):
        with pytest.raises(ValueError, match="not a path below"):
            act(relative)


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("ftp://bucket/x", "wanted a local path, s3://bucket/prefix, gs://bucket/prefix or abfs://"),
        ("s3:///x", "wanted a local path, s3://bucket/prefix"),
        ("s3://key:very-secret@bucket/x", "put them into the environment"),
        ("s3://bucket/x?access_key=very-secret", "access_key in the query"),
    ],
)
def test_an_address_of_another_kind_or_with_a_secret_is_refused_without_repeating_it(
    uri: str, wanted: str
) -> None:
    with pytest.raises(InputError) as caught:
        Store.open(uri)
    assert wanted in str(caught.value) and "very-secret" not in str(caught.value)


def test_a_foreign_folder_is_no_study(tmp_path: Path) -> None:
    for name in ("Upper", "good", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.yaml").touch()
    (tmp_path / "file").touch()
    assert Store.open(str(tmp_path)).names() == ["good"]


def test_a_table_has_the_figures_of_a_run_and_the_columns_of_a_config() -> None:
    figures = {field.name for field in SCHEMA} - {"confusion", "pseudo_confusion"}
    assert figures < set(METRICS.schema.names)
    types = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
    for name, kind in column_types().items():
        assert TRIALS.schema.field(name).type == types[kind], name
    for table in TABLES.values():
        assert len(set(table.schema.names)) == len(table.schema.names)
        assert not any(table.schema.field(name).nullable for name in ("study", *table.key))


def test_a_row_without_a_key_or_with_an_unknown_column_is_refused(folder: StudyFolder) -> None:
    with pytest.raises(ValueError, match="no column colour"):
        folder.append("trials", [{"trial": "a", "colour": 1}])
    with pytest.raises(ValueError, match="non-nullable"):
        folder.append("trials", [{"state": "running"}])
    with pytest.raises(InputError, match=r"columns colour.*wanted some of study, trial"):
        folder.table("trials", ["trial", "colour"])
    assert folder.table("trials").num_rows == 0


def test_adding_no_rows_makes_no_file(folder: StudyFolder) -> None:
    folder.append("trials", [])
    assert folder.list("trials") == []


def test_file_names_sort_by_time_and_say_the_process(folder: StudyFolder) -> None:
    for step in range(20):
        add(folder, step)
    names = folder.list("metrics")
    read = [folder.location.at(f"metrics/{name}").read() for name in names]
    assert [pq.read_table(pa.BufferReader(file))["step"][0].as_py() for file in read] == list(range(20))
    assert all(f"-{os.getpid()}-" in name for name in names)


def test_revisions_grow_at_every_call_and_after_a_faster_clock() -> None:
    first = [tick() for _ in range(1000)]
    assert first == sorted(set(first))
    ahead = tick() + 10**6
    catch_up(ahead)
    assert tick() > ahead


def put(folder: StudyFolder, name: str, rows: pa.Table, schema: str) -> Path:
    """A file as some other version would have written it."""
    path = Path(folder.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.replace_schema_metadata({"cbe.schema": schema}), path)
    return path


def test_columns_an_older_file_does_not_have_are_null(folder: StudyFolder) -> None:
    old = build(METRICS, [{"study": "first", "trial": "a", "step": 1, "revision": 5, "loss": 2.0}])
    put(folder, "metrics/0.parquet", old.drop_columns(["wall_s", "thresholds", "time"]), "metrics/1")
    add(folder, 2, loss=1.0, wall_s=3.0, thresholds=[0.5])
    found = folder.table("metrics").sort_by("step")
    assert found.schema.equals(METRICS.schema)
    assert found["wall_s"].to_pylist() == [None, 3.0] and found["loss"].to_pylist() == [2.0, 1.0]
    folder.compact("metrics")
    assert folder.table("metrics").sort_by("step")["thresholds"].to_pylist() == [None, [0.5]]


def test_a_narrower_type_of_an_older_file_is_widened(folder: StudyFolder) -> None:
    old = build(METRICS, [{"study": "first", "trial": "a", "step": 1, "revision": 5, "loss": 2.0}])
    whole = old.set_column(old.column_names.index("loss"), "loss", pa.array([2], pa.int64()))
    put(folder, "metrics/0.parquet", whole, "metrics/1")
    assert folder.table("metrics", ["loss"]).to_pylist() == [{"loss": 2.0}]


def test_a_merge_keeps_columns_it_does_not_know(folder: StudyFolder) -> None:
    rows = build(METRICS, [{"study": "first", "trial": "a", "step": 1, "revision": 5}])
    put(folder, "metrics/0.parquet", rows.append_column("brand_new", pa.array([7])), "metrics/1")
    add(folder, 2)
    folder.compact("metrics")
    folder.compact("metrics", grace_s=0)
    (name,) = folder.list("metrics")
    kept = pq.read_table(folder.path(f"metrics/{name}")).sort_by("step")
    assert kept["brand_new"].to_pylist() == [7, None]
    assert folder.table("metrics").schema.equals(METRICS.schema)


def test_a_newer_file_is_refused_by_readers_and_left_alone_by_merges(folder: StudyFolder) -> None:
    add(folder, 1)
    newer = build(METRICS, [{"study": "first", "trial": "a", "step": 2, "revision": 5}])
    path = put(folder, "metrics/9.parquet", newer, "metrics/2")
    for act in (folder.table, folder.compact):
        with pytest.raises(InputError, match=r"9\.parquet: was written as metrics/2.*install the newer"):
            act("metrics")
    assert path.exists() and len(folder.list("metrics")) == 2


def test_a_file_of_another_table_and_a_broken_one_are_named(folder: StudyFolder) -> None:
    rows = build(METRICS, [{"study": "first", "trial": "a", "step": 2, "revision": 5}])
    path = put(folder, "trials/1.parquet", rows, "metrics/1")
    with pytest.raises(InputError, match=r"1\.parquet: holds metrics/1; wanted trials/1"):
        folder.table("trials")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"trials: cannot be read.*1\.parquet"):
        folder.table("trials")


def test_files_in_the_making_are_never_read_and_swept_after_a_day(folder: StudyFolder) -> None:
    add(folder, 1)
    young, old, foreign, deep = (
        Path(folder.path(name))
        for name in ("metrics/.a.parquet.123", "metrics/.b.parquet.77", ".gitkeep", ".ray/x/.lock.5")
    )
    deep.parent.mkdir(parents=True)
    for path in (young, old, foreign, deep):
        path.write_bytes(b"half a file")
    for path in (old, foreign, deep):
        os.utime(path, (0, 0))
    assert steps(folder) == [1] and len(folder.list("metrics")) == 1
    folder.sweep()
    assert young.exists() and not old.exists() and foreign.exists() and deep.exists()
    assert steps(folder) == [1]


def test_a_failed_write_leaves_the_old_file_and_says_what_to_do(folder: StudyFolder) -> None:
    folder.write("status.json", b"old")
    with (
        small_files(4),
        pytest.raises(RunError, match=r"status.json: could not be written \(File too large\)"),
    ):
        folder.write("status.json", b"new and longer")
    assert folder.read("status.json") == b"old"
    assert [path.name for path in Path(folder.uri).iterdir()] == ["status.json"]


# Merging: each of these is an order of events that real processes meet by chance only.


WRITER = """
import sys
from cbe.store.folder import Store

folder, grace_s, first = Store.open(sys.argv[1]).study("first"), float(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + int(sys.argv[4])):
    rows = [{"trial": sys.argv[5], "step": 3 * number + part, "loss": float(number)} for part in range(3)]
    folder.append("metrics", rows)
    print(number, flush=True)
    if number % 4 == 3:
        folder.compact("metrics", grace_s)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def whole(folder: StudyFolder, trial: str) -> set[int]:
    """The numbers of the batches that are there, none of which may be there in part."""
    found = folder.table("metrics", ["step", "loss"], pc.field("trial") == trial).to_pylist()
    batches: dict[int, list[int]] = {}
    for row in found:
        batches.setdefault(int(row["loss"]), []).append(row["step"])
    for number, parts in batches.items():
        assert sorted(parts) == [3 * number, 3 * number + 1, 3 * number + 2]
    return set(batches)


def test_a_writer_killed_at_any_moment_leaves_every_acknowledged_row_whole(folder: StudyFolder) -> None:
    first, acknowledged = 0, set[int]()
    for moment in range(6):
        with start(WRITER, Path(folder.uri).parent, 0, first, 10**6, "a") as writer:
            assert writer.stdout is not None
            for _ in range(4 + moment):  # the fourth write is followed by a merge
                acknowledged.add(int(writer.stdout.readline()))
            writer.send_signal(signal.SIGKILL)
            acknowledged |= {int(line) for line in writer.stdout if line.endswith("\n")}
        there = whole(folder, "a")
        assert acknowledged <= there
        first = max(there) + 1
    folder.compact("metrics")
    folder.compact("metrics", grace_s=0)
    assert acknowledged <= whole(folder, "a") and len(folder.list("metrics")) == 1


@pytest.mark.parametrize("grace_s", [0.0, compact.GRACE_S])
def test_readers_miss_no_row_while_two_processes_write_and_merge(folder: StudyFolder, grace_s: float) -> None:
    writers = {trial: start(WRITER, Path(folder.uri).parent, grace_s, 0, 60, trial) for trial in "ab"}
    for number in range(60):
        for writer in writers.values():
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == number
        for trial in writers:
            there = whole(folder, trial)
            assert set(range(number + 1)) <= there
    assert [writer.wait() for writer in writers.values()] == [0, 0]
    for writer in writers.values():
        assert writer.stdout is not None
        writer.stdout.close()
    assert whole(folder, "a") == whole(folder, "b") == set(range(60))


def test_several_readers_in_their_own_processes_agree_with_the_writer(folder: StudyFolder) -> None:
    code = """
import sys
from cbe.store.folder import Store

folder, seen = Store.open(sys.argv[1]).study("first"), 0
print("ready", flush=True)
while seen < 150:
    rows = folder.table("metrics", ["step"])["step"].to_pylist()
    assert sorted(rows) == list(range(len(rows))), rows
    assert len(rows) >= seen
    seen = len(rows)
"""
    readers = [start(code, Path(folder.uri).parent) for _ in range(2)]
    for process in readers:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for step in range(150):
        add(folder, step)
        if step % 7 == 6:
            folder.compact("metrics", grace_s=0)
    for process in readers:
        assert process.wait() == 0 and process.stdout is not None
        process.stdout.close()


def test_every_file_says_its_table_and_version(folder: StudyFolder) -> None:
    add(folder, 1)
    add(folder, 2)
    folder.compact("metrics")
    for name in folder.list("metrics"):
        about = pq.read_schema(folder.path(f"metrics/{name}")).metadata
        assert about[b"cbe.schema"] == b"metrics/1"
