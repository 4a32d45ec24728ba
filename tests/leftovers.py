"""Ends every process that a test run leaves behind, however the run ends: done, Ctrl-C or SIGKILL.

All processes of a run inherit a mark in their environment. A watcher outside of the run waits for pytest to
end and then kills whatever still carries the mark, and its descendants: the title that Ray gives a process
may have been written over the mark.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

MARK = "CBE_TEST_RUN"
_ROUNDS = 50  # a process may have started another in the meantime


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a process of xdist, which has the mark of the one that started it
    os.environ[MARK] = secrets.token_hex(8)
    subprocess.Popen(
        [sys.executable, __file__, str(os.getpid()), os.environ[MARK]],
        env={key: value for key, value in os.environ.items() if key != MARK},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ).returncode = 0  # it outlives this process on purpose


def marked(run: str) -> set[int]:
    """The processes of a run that live, and their descendants."""
    parents = {pid: parent for pid, parent in _processes()}
    found = {pid for pid in parents if _has_mark(pid, run)}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _processes() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(entry.name), int(parent)


def _has_mark(pid: int, run: str) -> bool:
    with suppress(OSError):
        return f"{MARK}={run}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _watch(pid: int, run: str) -> None:
    with suppress(ProcessLookupError):
        waiting = select.poll()
        waiting.register(os.pidfd_open(pid), select.POLLIN)
        waiting.poll()
    for _ in range(_ROUNDS):
        left = marked(run)
        if not left:
            return
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
