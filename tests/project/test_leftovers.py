"""A test run that is killed takes its processes along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

STARTS = """
import pathlib, subprocess

def test_it():
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pathlib.Path("started").write_text(str(process.pid))
    process.wait()
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process_behind(how: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.leftovers import pytest_configure\n")
    (tmp_path / "test_it.py").write_text(STARTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    started = tmp_path / "started"
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as run:
        until(lambda: started.exists() and started.read_text(), 60, "the process of a test")
        pid = int(started.read_text())
        assert lives(pid)
        run.send_signal(how)
    until(lambda: not lives(pid), 60, "its end")
