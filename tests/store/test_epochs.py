"""One writer a study: whoever takes a later epoch shuts out the earlier ones, on a disk and in a bucket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from cbe.errors import StoreError, Superseded
from cbe.store import epochs
from cbe.store.epochs import EpochWriter
from cbe.store.folder import Store, StudyFolder
from cbe.store.recorder import Recorder
from cbe.store.schema import TABLES

NEVER = 3600.0
MADE = {"step": 9}
WHO = {"pid": 7, "host": "elsewhere"}


@pytest.fixture
def folder(store: Store) -> StudyFolder:
    return store.study("first")


def writer(folder: StudyFolder) -> EpochWriter:
    epoch = epochs.newest(folder) + 1
    assert epochs.take(folder, epoch, WHO)
    return EpochWriter(folder, epoch)


def steps(folder: StudyFolder) -> list[tuple[int, int]]:
    found = folder.table("metrics", ["step", "epoch"]).sort_by("step")
    return list(zip(found["step"].to_pylist(), found["epoch"].to_pylist(), strict=True))


def test_of_several_that_create_a_file_at_once_one_succeeds(folder: StudyFolder) -> None:
    with ThreadPoolExecutor(8) as pool:
        for name in "abcde":
            created = list(pool.map(folder.create, [name] * 8, [b"%d" % each for each in range(8)]))
            assert created.count(True) == 1
            assert folder.read(name) == b"%d" % created.index(True)
        assert list(pool.map(lambda _: epochs.take(folder, 1, WHO), range(8))).count(True) == 1
    assert epochs.newest(folder) == 1 and epochs.holder(folder, 1) == WHO


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_driver_writes_nothing_more_once_another_has_taken_over(folder: StudyFolder, before: int) -> None:
    first = writer(folder)
    for step in range(before):
        first.append("metrics", [{"trial": "a", "step": step}])
    second = writer(folder)
    for table, kind in TABLES.items():  # at any time later, and however often it tries
        row = {name: MADE.get(name, "x") for name in kind.key} | {"time": datetime.now(UTC)}
        row = {name: value for name, value in (row | {"kind": "x"}).items() if name in kind.schema.names}
        for _ in range(3):
            with pytest.raises(Superseded, match="process 7 on elsewhere has taken over"):
                first.append(table, [row])
    second.append("metrics", [{"trial": "a", "step": before}])
    assert steps(folder) == [*((step, 1) for step in range(before)), (before, 2)]


def test_a_driver_stays_shut_out_while_files_are_merged_and_deleted(folder: StudyFolder) -> None:
    asleep, written = [], []
    for number in range(3):
        each = writer(folder)
        for step in range(4 * number, 4 * number + 4):
            each.append("metrics", [{"trial": "a", "step": step}])
            written.append((step, each.epoch))
        asleep.append(each)
        for _ in range(2):
            folder.compact("metrics", grace_s=0)
    last = writer(folder)
    for _ in range(3):
        last.append("metrics", [{"trial": "a", "step": 0}])
        folder.compact("metrics", grace_s=0)
    for each in asleep:
        with pytest.raises(Superseded):
            each.append("metrics", [{"trial": "a", "step": 99}])
    assert steps(folder) == [(0, 4), *written[1:]]


def test_a_successor_that_dies_before_it_has_shut_out_others_leaves_that_to_the_next(
    folder: StudyFolder,
) -> None:
    first = writer(folder)
    first.append("metrics", [{"trial": "a", "step": 1}])
    folder.create("claims/00000002.json", b"{}")  # and no more
    third = writer(folder)
    for each in (first, EpochWriter(folder, 2)):
        with pytest.raises(Superseded):
            each.append("metrics", [{"trial": "a", "step": 2}])
    third.append("metrics", [{"trial": "a", "step": 2}])
    assert steps(folder) == [(1, 1), (2, 3)]


def test_a_write_whose_answer_was_lost_is_no_other_driver(folder: StudyFolder) -> None:
    mine = writer(folder)
    again = EpochWriter(folder, mine.epoch)  # as it is where the answer never came
    mine.append("metrics", [{"trial": "a", "step": 1}])
    again.append("metrics", [{"trial": "a", "step": 1}, {"trial": "a", "step": 2}])
    assert steps(folder) == [(1, 1), (2, 1)]


def test_an_epoch_that_ended_in_order_leaves_no_file_behind(folder: StudyFolder) -> None:
    mine = writer(folder)
    for step in range(4):
        mine.append("metrics", [{"trial": "a", "step": step}])
    epochs.end(folder, mine.epoch)
    for _ in range(2):
        folder.compact("metrics", grace_s=0)
    assert len(folder.list("metrics")) == 1
    writer(folder)
    assert len(folder.list("metrics")) == 1 and len(steps(folder)) == 4


def test_other_programs_read_a_table_in_which_a_driver_was_shut_out(local: Store) -> None:
    folder = local.study("first")
    writer(folder).append("metrics", [{"trial": "a", "step": 1, "loss": 0.5}])
    writer(folder).append("metrics", [{"trial": "a", "step": 2, "loss": 0.25}])
    found = ds.dataset(folder.path("metrics")).to_table().sort_by("step")
    assert found["loss"].to_pylist() == [0.5, 0.25]


def test_a_recorder_that_is_shut_out_says_so_and_drops_what_it_has(folder: StudyFolder) -> None:
    recorder = Recorder(folder, NEVER, writer(folder))
    recorder.trial("a", state="running")
    recorder.flush()
    with closing(Recorder(folder, NEVER, writer(folder)).load()) as second:
        recorder.trial("a", state="failed")
        recorder.metrics("a", {"step": 1, "loss": 1.0})
        recorder.flush()
        assert recorder.superseded is not None and recorder.problem is None
        second.trial("b", state="running")
    with pytest.raises(Superseded):
        recorder.close()
    found = folder.table("trials", ["trial", "state", "epoch"]).sort_by("trial").to_pylist()
    assert found == [
        {"trial": "a", "state": "running", "epoch": 1},
        {"trial": "b", "state": "running", "epoch": 2},
    ]
    assert folder.table("metrics").num_rows == folder.table("events").num_rows == 0


def test_a_study_whose_folder_is_away_is_not_begun_anew_in_its_place(local: Store) -> None:
    folder = local.study("first")
    mine = writer(folder)
    mine.append("metrics", [{"trial": "a", "step": 1}])
    place = Path(folder.uri)
    place.rename(place.with_name("unmounted"))
    with pytest.raises(StoreError, match="is gone"):
        mine.check()
    with pytest.raises(StoreError, match="is gone"):
        mine.append("metrics", [{"trial": "a", "step": 2}])
    assert not place.exists()
    place.with_name("unmounted").rename(place)
    mine.check()
    mine.append("metrics", [{"trial": "a", "step": 2}])
    assert steps(folder) == [(1, 1), (2, 1)]
