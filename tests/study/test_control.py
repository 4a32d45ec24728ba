"""Who drives: one process a study, however many want to and whatever their clocks say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cbe.errors import InputError, Superseded
from cbe.store import epochs
from cbe.store.epochs import EpochWriter
from cbe.store.folder import Store, StudyFolder
from cbe.store.states import STATUS, status
from cbe.study import control
from cbe.study.control import Claim
from tests.waiting import until

DRIVER = """
import sys, threading
from cbe.store.folder import Store
from cbe.study.control import Claim

lost = threading.Event()
with Claim(Store.open(sys.argv[1]).study("first"), lambda error: lost.set()) as claim:
    print("drives", flush=True)
    lost.wait()
print(claim.superseded, flush=True)
"""


class Nothing:
    def to_plain(self) -> dict[str, object]:
        return {"stage": "finished"}


@pytest.fixture
def folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> StudyFolder:
    monkeypatch.setenv("CBE_LEASE_S", "2")
    monkeypatch.setattr(control, "LEASE_S", 2.0)
    monkeypatch.setattr(control, "BEAT_S", 0.4)
    return store.study("first")


@contextmanager
def driving(folder: StudyFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process that drives the study."""
    command = [sys.executable, "-c", DRIVER, folder.uri.replace("/first", "")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "drives\n"
            yield process
        finally:
            process.kill()


def test_a_study_that_is_driven_is_refused(folder: StudyFolder) -> None:
    with driving(folder) as process:
        for _ in range(2):
            with (
                pytest.raises(InputError, match=f"is running already \\(process {process.pid} on "),
                Claim(folder),
            ):
                raise AssertionError
    assert epochs.newest(folder) == 1


def test_a_driver_that_was_killed_is_succeeded_at_once(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driving(folder) as process:
        process.kill()
        process.wait()
    monkeypatch.setattr(control, "LEASE_S", 3600.0)
    with Claim(folder) as claim:
        assert claim.writer.epoch == 2


def test_a_driver_that_sleeps_longer_than_its_lease_is_succeeded_and_stops_when_it_wakes(
    folder: StudyFolder,
) -> None:
    with driving(folder) as process:
        process.send_signal(signal.SIGSTOP)
        with Claim(folder) as claim:
            claim.writer.append("trials", [{"trial": "a", "state": "running"}])
            process.send_signal(signal.SIGCONT)
            assert process.stdout is not None
            told = process.stdout.readline()
            assert f"process {os.getpid()}" in told and "has taken over" in told
            assert process.wait(30) == 0
            until(lambda: status(folder).plain["epoch"] == 2, what="the successor's next beat")
            with pytest.raises(Superseded):
                EpochWriter(folder, 1).append("trials", [{"trial": "b", "state": "running"}])
            claim.end(Nothing())
    assert folder.table("trials", ["trial"])["trial"].to_pylist() == ["a"]
    assert status(folder).state == "finished"


@pytest.mark.parametrize("ahead_s", [-86_400.0, 86_400.0])
def test_the_clock_of_another_machine_does_not_matter(folder: StudyFolder, ahead_s: float) -> None:
    elsewhere = {"pid": 1, "born": 1, "host": "elsewhere"}
    assert epochs.take(folder, 1, elsewhere)
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1
        said = {"state": "running", "epoch": 1, "beats": beats, "beat": time.time() + ahead_s, **elsewhere}
        folder.write(STATUS, json.dumps(said).encode())

    beat()
    refused = pytest.raises(InputError, match="is running already \\(process 1 on elsewhere")
    with control.every(0.3, beat, "beats"), refused, Claim(folder):
        raise AssertionError
    begins = time.monotonic()
    with Claim(folder) as claim:  # it has fallen silent
        assert claim.writer.epoch == 2 and time.monotonic() - begins > 2.0


def test_a_driver_that_has_ended_is_succeeded_at_once(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LEASE_S", 3600.0)
    with Claim(folder) as claim:
        claim.end(Nothing())
    with pytest.raises(KeyboardInterrupt), Claim(folder):
        raise KeyboardInterrupt
    assert status(folder).state == "interrupted"
    with Claim(folder) as claim:
        assert claim.writer.epoch == 3
