"""The driver is killed or told to stop: a process with a Ray of its own; what is left goes on in this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from cbe.store.folder import Store, StudyFolder
from tests import waiting
from tests.conftest import Cbe
from tests.study.conftest import beside, curve, rows, study

CBE = [str(Path(sys.executable).with_name("cbe"))]


def until(holds: Callable[[], bool], process: subprocess.Popen[Any], timeout_s: float = 120) -> None:
    """Waits for something that a running process brings about."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert process.poll() is None, "the process ended before"
        assert time.monotonic() < deadline, "it never came to hold"
        threading.Event().wait(0.1)


def states(folder: StudyFolder) -> list[str]:
    return [row["state"] for row in rows(folder).values()]


@contextmanager
def driving(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process that does not outlive the test."""
    with subprocess.Popen([*CBE, *map(str, arguments)], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_study_whose_driver_is_killed_is_resumed_without_loss_or_repeat(
    tmp_path: Path, cluster: None, cbe_: Cbe
) -> None:
    plain = study(
        budget={"trials": 2000},
        confirm={"configs": 1, "runs": 1},
        training={"steps": 60, "eval_every": 20},
        scheduler={"name": "asha", "grace": 20, "reduction": 2},
    ).to_plain()
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    store = tmp_path / "store"
    folder = Store.open(str(store)).study("small")

    def in_the_middle() -> bool:
        found = list(rows(folder).values()) if folder.exists() else []
        ended = [row for row in found if row["state"] in ("completed", "pruned")]
        far = [row for row in found if row["state"] == "running" and (row["step"] or 0) >= 20]
        return len(ended) >= 2 and len(far) > 0

    with driving("run", tmp_path / "small.yaml", "--store", store) as driver:

        def is_caught() -> bool:
            """It stands still while it is looked at, and is let go where it has gone on meanwhile."""
            if in_the_middle():
                driver.send_signal(signal.SIGSTOP)
                if in_the_middle():
                    return True
                driver.send_signal(signal.SIGCONT)
            return False

        until(is_caught, driver)
        driver.send_signal(signal.SIGKILL)
    before = rows(folder)
    kept = {name: row for name, row in before.items() if row["state"] in ("completed", "pruned")}
    reached = {name for name, row in before.items() if row["state"] == "running" and row["step"]}
    assert len(kept) >= 2 and reached
    trials = len(before) + 3  # the sampler may have been asked for some that the store had not heard of

    assert json.loads(cbe_("ls", "--store", store, "--json").out)[0]["state"] == "interrupted"
    assert cbe_("resume", "small", "--store", store, "--set", f"budget.trials={trials}").code == 0

    after = rows(folder)
    assert {name: after[name] for name in kept} == kept
    assert sum(row["role"] == "search" for row in after.values()) == trials
    assert set(states(folder)) <= {"completed", "pruned"}
    points = [row["params"] for row in after.values() if row["role"] == "search" and not row["preset"]]
    assert len(set(points)) == len(points)
    steps = folder.table("metrics", ["trial", "step"]).to_pylist()
    assert len({(row["trial"], row["step"]) for row in steps}) == len(steps)
    for name, row in after.items():
        assert [step for step, *_ in curve(folder, name)] == list(range(20, row["step"] + 1, 20)), name
    went_on = {event["trial"] for event in events(folder, "resumed")}
    assert went_on & reached


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_a_driver_that_slept_longer_than_its_lease_writes_nothing_once_another_has_taken_over(
    place: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a Ray of their own, and trials of the first go on while it sleeps."""
    plain = study(
        budget={"trials": 2000}, training={"steps": 60, "eval_every": 20}, scheduler="none"
    ).to_plain()
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    store = str(tmp_path / "store")
    if place == "bucket":
        store = request.getfixturevalue("bucket").replace("results", "results-taken-over")
    folder = Store.open(store).study("small")
    monkeypatch.setenv("CBE_LEASE_S", "4")
    monkeypatch.chdir(tmp_path)

    def reports(epoch: int) -> set[tuple[str, int]]:
        found = folder.table("metrics", ["trial", "step", "epoch"]).to_pylist() if folder.exists() else []
        return {(row["trial"], row["step"]) for row in found if row["epoch"] == epoch}

    def configs() -> dict[str, str]:
        return {name: row["config"] for name, row in rows(folder).items()}

    with driving("run", tmp_path / "small.yaml", "--store", store, stderr=subprocess.PIPE) as first:
        until(lambda: len(reports(1)) >= 4, first)
        first.send_signal(signal.SIGSTOP)
        before, named = reports(1), configs()
        with driving("resume", "small", "--store", store) as second:
            until(lambda: len(reports(2)) >= 4, second, 240)
            first.send_signal(signal.SIGCONT)
            _, told = first.communicate(timeout=120)
            assert first.returncode == 1
            assert f"process {second.pid}" in told.decode() and "has taken over" in told.decode()
            after = len(reports(2))
            until(lambda: len(reports(2)) > after + 2, second)
            second.send_signal(signal.SIGINT)
            assert second.wait(120) == 130
    assert reports(1) == before
    raw = ds.dataset(folder.location.at("metrics").root, filesystem=folder.location.filesystem)
    steps = [(row["trial"], row["step"]) for row in raw.to_table(["trial", "step"]).to_pylist()]
    assert len(set(steps)) == len(steps)  # in all files, whatever a reader makes of them
    after_all = configs()
    assert {name: after_all[name] for name in named} == named
    every = ds.dataset(folder.location.at("trials").root, filesystem=folder.location.filesystem)
    config_of = {(row["trial"], row["config"]) for row in every.to_table(["trial", "config"]).to_pylist()}
    assert len(config_of) == len(after_all)


def events(folder: StudyFolder, kind: str) -> list[dict[str, Any]]:
    return [
        {**row, "details": json.loads(row["details"])}
        for row in folder.table("events").to_pylist()
        if row["kind"] == kind
    ]


def test_ctrl_c_stops_in_order_and_stop_does_the_same_from_elsewhere(
    tmp_path: Path, cluster: None, cbe_: Cbe
) -> None:
    plain = study(
        budget={"trials": 2}, training={"steps": 400_000, "eval_every": 10}, scheduler="none"
    ).to_plain()
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    store = tmp_path / "store"
    folder = Store.open(str(store)).study("small")

    def running() -> bool:
        return any((row["step"] or 0) > 0 for row in rows(folder).values() if row["state"] == "running")

    with driving("run", tmp_path / "small.yaml", "--store", store) as driver:
        until(running, driver)
        os.kill(driver.pid, signal.SIGINT)
        assert driver.wait(120) == 130
    assert set(states(folder)) == {"interrupted"}
    first = {name: row["step"] or 0 for name, row in rows(folder).items()}

    def further() -> bool:
        return any((row["step"] or 0) > first.get(name, 0) for name, row in rows(folder).items())

    def stop(over: threading.Event) -> None:
        try:
            waiting.until(lambda: over.is_set() or further(), what="a report")
            again = subprocess.run(
                [*CBE, "resume", "small", "--store", str(store)], capture_output=True, text=True
            )
            assert again.returncode == 2 and "is running already" in again.stderr
        finally:
            subprocess.run([*CBE, "stop", "small", "--store", str(store)], check=True)

    with beside(stop):
        assert cbe_("resume", "small", "--store", store).code == 3
    assert set(states(folder)) == {"interrupted"}
    assert further()
