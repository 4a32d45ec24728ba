"""Who drives a study, and how it is asked to stop."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from cbe.errors import CbeError, InputError
from cbe.processes import born
from cbe.store.folder import StudyFolder
from cbe.store.states import STATUS, status
from cbe.study.periodic import every

STOP = "stop"
BEAT_S = 2.0


class Beating(Protocol):
    """What a driver tells of itself every few seconds."""

    def to_plain(self) -> dict[str, Any]: ...


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
        with self._folder.changing():
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
