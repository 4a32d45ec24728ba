"""Programs that stay when the process that started them ends: each has a process session of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cbe.files import replace_file

POLL_S = 0.1

_children: dict[int, subprocess.Popen[bytes]] = {}  # of this process, which must wait for their end


@dataclass(frozen=True)
class BackgroundProcess:
    """A program that runs, and the address at which it answers."""

    address: str
    pid: int
    born: int | None  # when it began: its number may be given to another process later

    @property
    def alive(self) -> bool:
        child = _children.get(self.pid)
        if child is not None:
            return child.poll() is None
        return self.born is not None and born(self.pid) == self.born

    def wait_until(self, answers: Callable[[], bool], patience_s: float) -> bool:
        """Waits for its first answer; False if it ends before, or takes longer."""
        deadline = time.monotonic() + patience_s
        while not answers():
            if not self.alive or time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def terminate(self, patience_s: float) -> bool:
        """Asks it to end; whether it has ended within some seconds."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def kill(self) -> None:
        """Ends all processes of its session."""
        for pid in session(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child = _children.pop(self.pid, None)
        if child is not None:
            child.wait()


def start(
    command: Sequence[str],
    address: str,
    record: Path,
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> BackgroundProcess:
    """Starts a program. A later process finds it by its record; what it prints goes to its log."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    _children[child.pid] = child
    process = BackgroundProcess(address, child.pid, born(child.pid))
    # At once: a caller that is killed while it waits for an answer must not leave an unknown program.
    content = json.dumps(asdict(process)).encode()
    replace_file(record, lambda file: file.write(content))
    return process


def find(record: Path) -> BackgroundProcess | None:
    """The program of a record, if it still runs."""
    with suppress(OSError, ValueError, TypeError):
        found = BackgroundProcess(**json.loads(record.read_text("utf-8")))
        return found if found.alive else None
    return None


def born(pid: int) -> int | None:
    """When a process of this machine began, so that another with its number is not taken for it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def session(leader: int) -> list[int]:
    """The processes of a session, those that have left its group included, its leader last."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if entry.name.isdigit() and int(state[3]) == leader:
                found.append(int(entry.name))
    return sorted(found, key=lambda pid: pid == leader)
