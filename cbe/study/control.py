"""Who drives a study, whether it lives, and how it is asked to stop."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from cbe.configs import Row, shown_state
from cbe.errors import CbeError, InputError
from cbe.store.folder import StudyFolder
from cbe.study.periodic import every

STATUS = "status.json"
STOP = "stop"
BEAT_S = 2.0
SILENT_S = 20.0  # a driver on another machine that was not heard for so long is gone


class Beating(Protocol):
    """What a driver tells of itself every few seconds."""

    def to_plain(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Status:
    """The last that was heard of a study's driver."""

    plain: dict[str, Any]

    @property
    def state(self) -> str:
        """running, finished, stopped, or interrupted where a driver is gone without a word."""
        said = str(self.plain.get("state", "new"))
        return "interrupted" if said == "running" and not self.alive else said

    @property
    def alive(self) -> bool:
        if self.plain.get("state") != "running":
            return False
        if self.plain.get("host") == socket.gethostname():
            return _runs(int(self.plain.get("pid") or 0), self.plain.get("born"))
        return time.time() - float(self.plain.get("beat", 0)) < SILENT_S

    @property
    def paused(self) -> frozenset[str]:
        """The trials that waited for the scheduler."""
        said = self.plain.get("paused")
        return frozenset(map(str, said)) if isinstance(said, list) else frozenset()

    def state_of(self, trial: Row) -> str:
        """A trial's state as a reader sees it."""
        return shown_state(trial, alive=self.alive, paused=self.paused)

    @property
    def elapsed_s(self) -> float:
        """How long drivers have run, all starts of the study together."""
        said = self.plain.get("elapsed_s")
        return float(said) if isinstance(said, int | float) and said > 0 else 0.0


def status(folder: StudyFolder) -> Status:
    content = folder.read(STATUS)
    try:
        plain = json.loads(content) if content else {}
    except ValueError:  # no driver writes such a thing
        plain = {}
    return Status(plain if isinstance(plain, dict) else {})


def ask_to_stop(folder: StudyFolder) -> None:
    """Asks the study's driver to stop; it does within seconds, and every trial keeps its checkpoint."""
    if not status(folder).alive:
        raise InputError(f"{folder.name}: is not running; there is nothing to stop")
    folder.write(STOP, b"")


def stop_was_asked(folder: StudyFolder) -> bool:
    return folder.read(STOP) is not None


class Claim:
    """Makes one process the driver of a study, as long as it says so every few seconds."""

    def __init__(self, folder: StudyFolder) -> None:
        self._folder = folder
        self.elapsed_s = 0.0  # of all drivers so far
        self._who = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}

    def __enter__(self) -> Self:
        last = status(self._folder)
        if last.alive:
            raise InputError(
                f"{self._folder.name}: is running already (process {last.plain['pid']} on "
                f"{last.plain['host']}); watch it with `cbe show {self._folder.name}`, or stop it with "
                f"`cbe stop {self._folder.name}`"
            )
        self.elapsed_s = last.elapsed_s
        self._folder.delete(STOP)
        self._say(state="running")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            plainly = {KeyboardInterrupt: "Ctrl-C", SystemExit: "terminated"}
            text = str(error) if isinstance(error, CbeError) else plainly.get(kind, kind.__name__)
            self._say(state="interrupted", why=text)

    @contextmanager
    def beating(self, progress: Beating) -> Iterator[None]:
        """Says every few seconds how the study stands.

        Where that fails, the recorder meets the same trouble, and it is the one to tell.
        """
        with every(BEAT_S, lambda: self._say(state="running", **progress.to_plain()), "heartbeat"):
            yield

    def end(self, progress: Beating) -> None:
        plain = progress.to_plain()
        self._say(state=plain["stage"], **plain)
        self._folder.delete(STOP)

    def _say(self, **known: Any) -> None:
        self.elapsed_s = known.get("elapsed_s", self.elapsed_s)
        so_far = {"elapsed_s": self.elapsed_s} if self.elapsed_s else {}
        plain = {**self._who, "beat": time.time(), **so_far, **known}
        content = json.dumps(plain, indent=1, default=str)
        self._folder.write(STATUS, content.encode())


def born(pid: int) -> int | None:
    """When a process of this machine began, so that another with its number is not taken for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _runs(pid: int, since: int | None) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    now = born(pid)
    return since is None or now is None or now == since
