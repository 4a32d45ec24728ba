"""Files of a table that are merged: no reader notices, and no row is lost."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import fsspec
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from pyarrow import fs

from cbe.errors import RunError
from cbe.store import compact, reader
from cbe.store.folder import Store, StudyFolder
from cbe.store.location import Location
from cbe.store.schema import METRICS, replaced
from tests.store.tables import add, steps


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
