"""The index of a store: a list of studies takes few requests, and is true whatever has happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from cbe.store.clock import tick
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.store.index import FOLDER, Known
from cbe.store.reader import scan
from cbe.store.schema import STUDIES
from cbe.store.states import STATUS
from cbe.study.overview import overviews, settle
from tests.conftest import requests
from tests.made import whole

ELSEWHERE: dict[str, Any] = {"pid": 1, "born": None, "host": "elsewhere"}


def add(store: Store, name: str, state: str = "finished", **said: Any) -> StudyFolder:
    """A study that was begun, driven and ended as lifecycle and driver do it."""
    folder = store.study(name)
    with folder.changing():
        folder.write(STUDY_FILE, b"name: %b\ndata: {labels: 40}\nbudget: {trials: 2}\n" % name.encode())
    drive(folder, state, **said)
    return folder


def drive(folder: StudyFolder, state: str, trials: int = 1, **said: Any) -> None:
    with folder.changing():
        say(folder, "running", **ELSEWHERE, beat=0)
    rows = [{"trial": f"t{number:04d}", "role": "search", "state": "completed"} for number in range(trials)]
    folder.append("trials", rows)
    say(folder, state, **said)


def say(folder: StudyFolder, state: str, **said: Any) -> None:
    folder.write(STATUS, json.dumps({"state": state, **said}).encode())


def seen(store: Store) -> dict[str, tuple[str, int]]:
    """Name, state and trials of each study in a list."""
    return {each.study: (each.state, sum(each.counts.values())) for each in overviews(store)}


def test_a_second_list_of_many_studies_takes_a_few_requests(store: Store) -> None:
    names = [f"s{number:03d}" for number in range(30)]
    for name in names:
        add(store, name)
    first = overviews(store)
    assert [each.study for each in first] == names
    with requests() as made:
        assert overviews(store) == first
    assert len(made) < 12 and bool(made) != store.location.local


def test_a_driver_that_ends_notes_it_so_that_no_list_has_to_look(store: Store) -> None:
    add(store, "first", trials=3)
    settle(store, "first")
    row = store.index.of("first")
    assert row.state == "finished" and row.overview
    with requests() as made:
        assert seen(store) == {"first": ("finished", 3)}
    assert not any("first/" in line for line in made)


def test_what_goes_on_after_a_list_is_seen_by_the_next(store: Store) -> None:
    folder = add(store, "first", "stopped")
    assert seen(store) == {"first": ("stopped", 1)}
    drive(folder, "finished", trials=2)
    assert seen(store) == {"first": ("finished", 2)}
    folder.remove()
    assert seen(store) == {} and store.names() == []
    add(store, "first", "stopped", trials=5)
    assert seen(store) == {"first": ("stopped", 5)}


KILLED = """
import json, os, signal, sys
from contextlib import ExitStack
from cbe.store.folder import STUDY_FILE, Store
store = Store.open(sys.argv[1])
with ExitStack() as stack:
    for name in "abcd":
        stack.enter_context(store.study(name).changing())
    silent = {"state": "running", "pid": 1, "host": "elsewhere", "beat": 0}
    store.study("b").write("status.json", json.dumps(silent).encode())
    store.study("c").append("trials", [{"trial": "t0009", "role": "search", "state": "running"}])
    store.study("d").delete(STUDY_FILE)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_driver_that_is_killed_leaves_a_list_that_is_true(store: Store) -> None:
    for name in "abcd":
        add(store, name)
    assert len(seen(store)) == 4
    killed = subprocess.run([sys.executable, "-c", KILLED, store.uri])
    assert killed.returncode == -signal.SIGKILL
    wanted = {"a": ("finished", 1), "b": ("interrupted", 1), "c": ("finished", 2)}
    assert seen(store) == seen(store) == wanted
    known = store.known()
    assert known["a"].at_rest and known["c"].at_rest
    assert not known["b"].at_rest  # it may be heard of again
    say(store.study("b"), "finished")
    assert seen(store)["b"] == ("finished", 1)


def test_what_was_seen_before_a_change_is_not_noted_after_it(store: Store) -> None:
    folder = add(store, "first")
    before = store.index.of("first")
    with folder.changing():
        within = store.index.of("first")
        say(folder, "running", **ELSEWHERE, beat=0)
    for known in (before, within):  # two that had looked before it and are slow to write
        store.index.note([("first", known, {"state": "finished", "stamp": "", "overview": "{}"})])
    assert not store.index.of("first").at_rest
    assert seen(store) == {"first": ("interrupted", 1)}


def test_a_machine_whose_clock_is_slow_opens_a_study_all_the_same(store: Store) -> None:
    folder = add(store, "first")
    ahead = Known(tick() + 3600 * 10**9)
    store.index.note([("first", ahead, {"state": "finished", "stamp": "", "overview": "{}"})])
    slow = """
import sys
from cbe.store.folder import Store
with Store.open(sys.argv[1]).study("first").changing():
    pass
"""
    subprocess.run([sys.executable, "-c", slow, store.uri], check=True, env=os.environ)
    assert not store.index.of("first").at_rest and store.index.of("first").revision > ahead.revision
    assert seen(store) == {folder.name: ("finished", 1)}


def test_an_index_that_is_gone_or_broken_costs_time_alone(store: Store) -> None:
    for name in "ab":
        add(store, name)
    wanted = seen(store)
    store.location.at(FOLDER).delete()
    assert seen(store) == wanted and store.known()["a"].at_rest
    store.location.at(f"{FOLDER}/1.parquet").write(b"no table")
    assert seen(store) == wanted == dict.fromkeys("ab", ("finished", 1))


def test_a_study_that_is_brought_or_taken_away_by_hand_is_seen(local: Store, tmp_path: Path) -> None:
    add(local, "a")
    seen(local)
    other = Store.open(str(tmp_path / "other"))
    shutil.copytree(add(other, "b").uri, tmp_path / "results" / "b")
    whole(tmp_path / "results", "c")
    assert set(seen(local)) == {"a", "b", "c"}
    shutil.rmtree(local.study("a").uri)
    assert set(seen(local)) == {"b", "c"}
    say(local.study("b"), "stopped")  # by an editor, say
    assert seen(local)["b"][0] == "stopped"


def test_the_index_is_merged_by_those_who_write_to_it(local: Store) -> None:
    for number in range(60):
        with local.study(f"s{number}").changing():
            pass
    place = local.location.at(FOLDER)
    assert len(local.index.all()) == 60
    assert len(scan(place, STUDIES).live) < 30
    for entry in place.entries():
        os.utime(f"{place.root}/{entry.name}", (0, 0))
    with local.study("s0").changing():
        pass
    assert len(place.entries()) < 40 and len(local.index.all()) == 60
