"""The driver is killed, a node is lost, the store is a bucket: whole studies in processes of their own."""

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

import yaml

from cbe.store.folder import Store, StudyFolder
from tests.study.conftest import curve, rows, study

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
def driving(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process that does not outlive the test."""
    with subprocess.Popen([*CBE, *map(str, arguments)]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_study_whose_driver_is_killed_is_resumed_without_loss_or_repeat(tmp_path: Path) -> None:
    plain = study(
        budget={"trials": 2000},
        confirm={"configs": 1, "runs": 1},
        training={"steps": 120, "eval_every": 20},
        scheduler={"name": "asha", "grace": 40, "reduction": 2},
    ).to_plain()
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    store = tmp_path / "store"
    folder = Store.open(str(store)).study("small")

    def in_the_middle() -> bool:
        found = list(rows(folder).values()) if folder.exists() else []
        ended = [row for row in found if row["state"] in ("completed", "stopped")]
        far = [row for row in found if row["state"] == "running" and (row["step"] or 0) >= 40]
        return len(ended) >= 3 and len(far) > 0

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
    kept = {name: row for name, row in before.items() if row["state"] in ("completed", "stopped")}
    reached = {name for name, row in before.items() if row["state"] == "running" and row["step"]}
    assert len(kept) >= 3 and reached
    trials = len(before) + 4  # the sampler may have been asked for some that the store had not heard of

    shown = subprocess.run(
        [*CBE, "ls", "--store", str(store), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(shown.stdout)[0]["state"] == "interrupted"
    fewer = ["--set", f"budget.trials={trials}"]
    subprocess.run([*CBE, "resume", "small", "--store", str(store), *fewer], check=True, timeout=240)

    after = rows(folder)
    assert {name: after[name] for name in kept} == kept
    assert sum(row["role"] == "search" for row in after.values()) == trials
    assert set(states(folder)) <= {"completed", "stopped"}
    points = [row["params"] for row in after.values() if row["role"] == "search" and not row["preset"]]
    assert len(set(points)) == len(points)
    steps = folder.table("metrics", ["trial", "step"]).to_pylist()
    assert len({(row["trial"], row["step"]) for row in steps}) == len(steps)
    for name, row in after.items():
        assert [step for step, *_ in curve(folder, name)] == list(range(20, row["step"] + 1, 20)), name
    went_on = {event["trial"] for event in events(folder, "resumed")}
    assert went_on & reached


def events(folder: StudyFolder, kind: str) -> list[dict[str, Any]]:
    return [
        {**row, "details": json.loads(row["details"])}
        for row in folder.table("events").to_pylist()
        if row["kind"] == kind
    ]


def test_ctrl_c_stops_in_order_and_stop_does_the_same_from_elsewhere(tmp_path: Path) -> None:
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

    with driving("resume", "small", "--store", store) as driver:
        until(further, driver)
        again = subprocess.run(
            [*CBE, "resume", "small", "--store", str(store)], capture_output=True, text=True
        )
        assert again.returncode == 2 and "is running already" in again.stderr
        subprocess.run([*CBE, "stop", "small", "--store", str(store)], check=True)
        assert driver.wait(120) == 3
    assert set(states(folder)) == {"interrupted"}


def test_a_study_lives_in_a_bucket(tmp_path: Path, bucket: str) -> None:
    short = {"steps": 20}
    plain = study(budget={"trials": 3}, confirm={"configs": 1, "runs": 1}, training=short).to_plain()
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    begin = [*CBE, "run", str(tmp_path / "small.yaml"), "--store", bucket]
    subprocess.run(begin, check=True, timeout=240, cwd=tmp_path)
    folder = Store.open(bucket).study("small")
    found = rows(folder)
    assert {row["state"] for row in found.values()} <= {"completed", "stopped"}
    assert all(folder.read(row["checkpoint"]) for row in found.values())
    more = [*CBE, "resume", "small", "--store", bucket, "--set", "budget.trials=4"]
    subprocess.run(more, check=True, timeout=240, cwd=tmp_path)
    assert {name: row for name, row in rows(folder).items() if name in found} == found
    assert sum(row["role"] == "search" for row in rows(folder).values()) == 4
