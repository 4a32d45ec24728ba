"""The Parquet store: what a reader sees while others write, merge and die."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import fsspec
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from pyarrow import fs

from cbe.errors import InputError, RunError
from cbe.spec.identity import column_types
from cbe.store import compact, reader
from cbe.store.clock import catch_up, tick
from cbe.store.folder import Store, StudyFolder
from cbe.store.location import Location
from cbe.store.run_folder import SCHEMA
from cbe.store.schema import METRICS, TABLES, TRIALS, build, replaced
from tests.conftest import small_files


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return Store.open(str(tmp_path / "results")).study("first")


def steps(folder: StudyFolder, trial: str = "a") -> list[int]:
    return sorted(folder.table("metrics", ["step"], pc.field("trial") == trial)["step"].to_pylist())


def add(folder: StudyFolder, *steps: int, trial: str = "a", **columns: object) -> None:
    folder.append("metrics", [{"trial": trial, "step": step, **columns} for step in steps])


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


def listed(folder: StudyFolder) -> reader.Listing:
    return reader.scan(folder.location.at("metrics"), METRICS)


def test_a_reader_that_listed_before_a_merge_still_finds_every_file(folder: StudyFolder) -> None:
    add(folder, 1)
    add(folder, 2)
    before = listed(folder)
    assert folder.compact("metrics") == 1
    add(folder, 3)
    assert folder.compact("metrics") == 1
    rows = before.rows(before.live, METRICS.schema)
    assert sorted(rows["step"].to_pylist()) == [1, 2]


class Scan(fs.FSSpecHandler):
    """Local files, and something that happens during every scan of a folder.

    A scan that is not atomic is sure to show what is there all the while, and nothing else; one that is
    over before shows all there was, though it may be gone.
    """

    def __init__(self, during: Callable[[], object], *, atomic: bool) -> None:
        super().__init__(fsspec.filesystem("file"))
        self.during, self.atomic, self.scans = during, atomic, 0

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        before = super().get_file_info_selector(selector)
        self.scans += 1
        self.during()
        after = {info.path for info in super().get_file_info_selector(selector)}
        return [info for info in before if self.atomic or info.path in after]


def during_scan(folder: StudyFolder, act: Callable[[], object], *, atomic: bool) -> tuple[StudyFolder, Scan]:
    handler = Scan(act, atomic=atomic)
    return StudyFolder("first", Location(fs.PyFileSystem(handler), folder.location.root)), handler


@pytest.mark.parametrize("grace_s", [compact.GRACE_S, 0.0])
def test_a_scan_torn_by_merges_misses_no_row(folder: StudyFolder, grace_s: float) -> None:
    for step in (1, 2, 3):
        add(folder, step)

    def merge() -> None:
        folder.compact("metrics", grace_s)
        folder.compact("metrics", grace_s)

    torn, _ = during_scan(folder, merge, atomic=False)
    assert steps(torn) == steps(folder) == [1, 2, 3]


def test_a_read_starts_over_until_its_files_stay(folder: StudyFolder) -> None:
    add(folder, 1)
    add(folder, 2)
    turns = iter([3, 4])

    def merge() -> None:
        step = next(turns, None)
        if step is not None:
            folder.compact("metrics", grace_s=0)
            add(folder, step)
            folder.compact("metrics", grace_s=0)
            folder.compact("metrics", grace_s=0)

    moving, handler = during_scan(folder, merge, atomic=True)
    assert steps(moving) == [1, 2, 3, 4] and handler.scans > 2


def test_a_read_gives_up_when_its_files_never_stay(folder: StudyFolder) -> None:
    add(folder, 1)

    def move() -> None:
        (name,) = folder.list("metrics")
        path = Path(folder.path(f"metrics/{name}"))
        path.rename(path.with_name("x" + name))

    moving, handler = during_scan(folder, move, atomic=True)
    with pytest.raises(RunError, match=r"went away 10 times.*try again"):
        steps(moving)
    assert handler.scans >= 10


def test_what_two_merges_at_once_leave_is_joined_by_the_next(folder: StudyFolder) -> None:
    add(folder, 1)
    add(folder, 2)
    earlier = listed(folder)
    add(folder, 3, loss=1.0)
    folder.compact("metrics")
    add(folder, 3, loss=2.0)
    # The other merge listed before file 3 was there and writes only now.
    place, rows = folder.location.at("metrics"), earlier.rows(earlier.live, METRICS.schema)
    stale = METRICS.encode(rows, [part.name for part in earlier.live])
    place.at(compact.new_name(reader.MERGED)).write(stale)
    assert len(listed(folder).live) == 3
    for _ in range(3):
        assert steps(folder) == [1, 2, 3]
        assert folder.table("metrics", ["loss"], pc.field("step") == 3).to_pylist() == [{"loss": 2.0}]
        assert folder.compact("metrics", grace_s=0) == 1
    assert len(folder.list("metrics")) == 1


def test_a_merge_names_what_an_earlier_one_replaced_as_long_as_it_is_there(folder: StudyFolder) -> None:
    for step in (1, 2):
        add(folder, step)
    originals = folder.list("metrics")
    folder.compact("metrics")
    add(folder, 3)
    folder.compact("metrics")
    (newest,) = listed(folder).live
    assert set(originals) < set(replaced(newest.schema))
    # The first merged file may go before the originals do: they must not come back to life.
    (first,) = (
        name for name in folder.list("metrics") if name.endswith(reader.MERGED) and name != newest.name
    )
    folder.delete(f"metrics/{first}")
    assert [part.name for part in listed(folder).live] == [newest.name]
    assert steps(folder) == [1, 2, 3]


def test_what_a_merge_replaced_goes_in_time_though_merges_follow_each_other_closely(
    folder: StudyFolder,
) -> None:
    for step in (1, 2):
        add(folder, step)
    originals = set(folder.list("metrics"))
    folder.compact("metrics")
    (first,) = set(folder.list("metrics")) - originals
    add(folder, 3)
    folder.compact("metrics")
    add(folder, 4)
    os.utime(folder.path(f"metrics/{first}"), (0, 0))
    folder.compact("metrics")
    there = set(folder.list("metrics"))
    assert not originals & there and first in there
    assert steps(folder) == [1, 2, 3, 4]


def test_a_large_file_is_not_merged_again_for_a_few_rows(folder: StudyFolder) -> None:
    noise = [os.urandom(64).hex() for _ in range(16000)]
    folder.append("events", [{"id": text, "time": 0, "kind": "x"} for text in noise])
    folder.append("events", [{"id": "a", "time": 0, "kind": "x"}])
    folder.append("events", [{"id": "b", "time": 0, "kind": "x"}])
    assert folder.compact("events") == 2
    assert folder.table("events").num_rows == 16002
    folder.append("events", [{"id": text[::-1], "time": 0, "kind": "x"} for text in noise])
    assert folder.compact("events") == 1
    assert folder.table("events").num_rows == 32002


def test_a_finished_study_has_one_sorted_file_a_table_whatever_it_wrote(folder: StudyFolder) -> None:
    for step in range(30):
        add(folder, step, trial=f"t{step % 3}")
        folder.append("trials", [{"trial": f"t{step % 3}", "step": step}])
        folder.append("events", [{"id": f"{step:x}", "time": step, "kind": "x", "trial": f"t{step % 3}"}])
        if step % 7 == 0:
            folder.compact("metrics")
    folder.finish()
    folder.finish()
    for table, rows in {"metrics": 30, "trials": 3, "events": 30}.items():
        (name,) = folder.list(table)
        found = pq.read_table(folder.path(f"{table}/{name}"))
        assert found.num_rows == rows
        assert found["trial"].to_pylist() == sorted(found["trial"].to_pylist())
    assert folder.list("confusions") == []


def test_any_parquet_reader_opens_a_finished_study(folder: StudyFolder) -> None:
    for step in range(3):
        add(folder, step, loss=0.5)
        add(folder, step, loss=float(step))
    folder.finish()
    place, wanted = folder.path("metrics"), [0.0, 1.0, 2.0]
    assert ds.dataset(place).to_table().sort_by("step")["loss"].to_pylist() == wanted
    assert pd.read_parquet(place).sort_values("step")["loss"].to_list() == wanted
    assert pl.read_parquet(f"{place}/*.parquet").sort("step")["loss"].to_list() == wanted
    assert duckdb.sql(f"select loss from '{place}/*.parquet' order by step").fetchall() == [
        (loss,) for loss in wanted
    ]


def test_a_table_larger_than_memory_is_merged_piece_by_piece(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "_AT_ONCE", (10, 2**20))
    for batch in range(12):
        for trial in ("a", "b", f"t{batch}"):
            add(folder, *range(batch, batch + 5), trial=trial, loss=float(batch))
        folder.append("events", [{"id": f"{batch}", "time": batch, "kind": "x"}])
        folder.append("events", [{"id": f"{batch}t", "time": batch, "kind": "x", "trial": f"t{batch}"}])
        if batch % 5 == 4:
            folder.compact("metrics")
    before = sorted(map(str, folder.table("metrics").to_pylist()))
    folder.finish()
    (name,) = folder.list("metrics")
    found = pq.read_table(folder.path(f"metrics/{name}"))
    keys = list(zip(found["trial"].to_pylist(), found["step"].to_pylist(), strict=True))
    assert keys == sorted(set(keys)) and len(keys) == 2 * 16 + 12 * 5
    assert sorted(map(str, folder.table("metrics").to_pylist())) == before
    assert folder.table("events").num_rows == 24


def test_large_rows_make_small_groups_and_are_merged_a_few_at_a_time(folder: StudyFolder) -> None:
    noise = np.random.default_rng(0)
    for step in range(40):
        rows = [
            {
                "trial": f"t{number}",
                "step": step,
                "kind": "pseudo",
                "matrix": noise.random((100, 100)).tolist(),
            }
            for number in range(10)
        ]
        folder.append("confusions", rows)
    before = folder.table("confusions").sort_by([("trial", "ascending"), ("step", "ascending")])
    folder.finish()
    (name,) = folder.list("confusions")
    footer = pq.read_metadata(folder.path(f"confusions/{name}"))
    assert footer.num_rows == 400 and footer.num_row_groups > 1
    assert max(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups)) < 2**25
    assert folder.table("confusions").equals(before)


def test_rows_are_written_again_only_as_their_number_doubles(folder: StudyFolder) -> None:
    written, seen, batch = 0, set[str](), [os.urandom(64).hex() for _ in range(500)]
    batches = 200
    for number in range(batches):
        rows = [{"id": f"{number}{text}", "time": 0, "kind": "x"} for text in batch]
        folder.append("events", rows)
        folder.compact("events", grace_s=0, least=5)
        for name in set(folder.list("events")) - seen:
            seen.add(name)
            written += pq.read_metadata(folder.path(f"events/{name}")).num_rows
    rewritten = written / (batches * len(batch))
    assert rewritten < 2 + 2 * math.log2(batches) and len(folder.list("events")) < 20


Write = tuple[str, int, int]


@settings(deadline=None, max_examples=50)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 50)), max_size=4),
            st.sampled_from(["", "merge", "merge at once"]),
        ),
        max_size=8,
    )
)
def test_any_order_of_writes_and_merges_reads_as_a_plain_table(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[Write], str]]
) -> None:
    folder = Store.open(str(tmp_path_factory.mktemp("store"))).study("first")
    wanted: dict[tuple[str, int], int] = {}
    for rows, then in batches:
        # Revisions come in any order, as from several machines; each stands for one value.
        folder.append(
            "metrics",
            [
                {"trial": trial, "step": step, "revision": revision, "loss": float(revision)}
                for trial, step, revision in rows
            ],
        )
        for trial, step, revision in rows:
            wanted[trial, step] = max(revision, wanted.get((trial, step), 0))
        if then:
            folder.compact("metrics", grace_s=60 if then == "merge" else 0)
        found = folder.table("metrics", ["loss", "trial", "step"]).to_pylist()
        assert len(found) == len(wanted)
        assert {(row["trial"], row["step"]): row["loss"] for row in found} == wanted
        one = folder.table("metrics", ["loss"], (pc.field("trial") == "a") & (pc.field("step") > 0))
        mine = [value for (trial, step), value in wanted.items() if trial == "a" and step > 0]
        assert sorted(one["loss"].to_pylist()) == sorted(mine)


# Real processes.

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
