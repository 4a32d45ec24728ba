"""Who drives a study, and how it is asked to stop.

A driver takes the study's next epoch (`cbe.store.epochs`) and renews it by a number in `status.json` that
grows with every beat. Whoever wants to succeed it looks by its own clock only at whether that number changes
within `LEASE_S`: clocks of two machines are never compared. Of a driver on the same machine it also knows at
once when the process is gone. Which rows count does not depend on any of this: epochs decide that.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol, Self

from cbe.errors import CbeError, InputError, Superseded
from cbe.processes import born
from cbe.store import epochs
from cbe.store.epochs import EpochWriter
from cbe.store.folder import StudyFolder
from cbe.store.outage import Outage
from cbe.store.states import STATUS, runs, status
from cbe.study.periodic import every, outlast

STOP = "stop"
# Without a sign of a driver for so long another may take over.
LEASE_S = float(os.environ.get("CBE_LEASE_S", "20"))
BEAT_S = min(2.0, LEASE_S / 5)

log = logging.getLogger("cbe.study")


class Beating(Protocol):
    """What a driver tells of itself every few seconds."""

    def to_plain(self) -> dict[str, Any]: ...


class IsDriven(InputError):
    """Somebody drives, and gives signs of it."""

    def __init__(self, message: str, who: str) -> None:
        self.who = who
        super().__init__(message, who)

    def __str__(self) -> str:
        return str(self.args[0])


def ask_to_stop(folder: StudyFolder) -> None:
    """Asks the study's driver to stop; it does within seconds, and every trial keeps its checkpoint."""
    if not status(folder).alive:
        raise InputError(f"{folder.name}: is not running; there is nothing to stop")
    folder.write(STOP, b"")


def stop_was_asked(folder: StudyFolder) -> bool:
    return folder.read(STOP) is not None


class Claim:
    """Makes one process the driver of a study, as long as it says so every few seconds.

    A thread does that. It also looks whether somebody has taken over or wishes a stop, so that who asks for
    either need not wait for the store.
    """

    def __init__(
        self, folder: StudyFolder, on_superseded: Callable[[Superseded], object] = lambda _: None
    ) -> None:
        self._folder, self.on_superseded = folder, on_superseded  # called in the claim's thread
        self.elapsed_s = 0.0  # of all drivers so far
        self.stop_asked = False
        self.superseded: Superseded | None = None  # by a driver that has taken over
        self.outage = Outage(lambda kind, **details: None)  # where it is told that the store does not answer
        self._who = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
        self._progress: Beating | None = None
        self._beats = 0
        self._thread = ExitStack()

    def __enter__(self) -> Self:
        self.writer = EpochWriter(self._folder, self._take())
        self.elapsed_s = status(self._folder).elapsed_s
        with self._folder.changing():
            self._folder.delete(STOP)
            self._say(state="running")
        self._thread.enter_context(every(BEAT_S, self._beat, "heartbeat"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()
        if kind is not None and not self.superseded and not issubclass(kind, Superseded):
            plainly = {KeyboardInterrupt: "Ctrl-C", SystemExit: "terminated"}
            text = str(error) if isinstance(error, CbeError) else plainly.get(kind, kind.__name__)
            with suppress(CbeError):  # it would hide what has happened
                self.writer.check()
                self._say(state="interrupted", why=text)

    @contextmanager
    def beating(self, progress: Beating) -> Iterator[None]:
        """Says with every beat how the study stands."""
        self._progress = progress
        try:
            yield
        finally:
            self._progress = None

    def end(self, progress: Beating) -> None:
        """The last word of this driver, however long the store does not take it."""
        self._thread.close()
        if self.superseded:
            raise self.superseded
        plain = progress.to_plain()
        outlast(self.writer.check)
        outlast(lambda: self._say(state=plain["stage"], **plain))
        outlast(lambda: self._folder.delete(STOP))
        outlast(lambda: epochs.end(self._folder, self.writer.epoch))

    def _take(self) -> int:
        while True:
            last = epochs.newest(self._folder)
            if last:
                self._await_end(last)
            if epochs.take(self._folder, last + 1, self._who):
                return last + 1

    def _await_end(self, epoch: int) -> None:
        """Returns when nobody drives in this epoch any more; refuses where somebody does."""
        if "ended" in epochs.epochs(self._folder).get(epoch, ()):
            return
        who, begun, is_told = epochs.holder(self._folder, epoch), time.monotonic(), False
        first = self._sign(epoch)
        while first != "ended" and not self._is_gone(who):
            waited_s = time.monotonic() - begun
            if (now := self._sign(epoch)) == "ended":
                return
            if now != first:
                name, process = self._folder.name, f"process {who.get('pid')} on {who.get('host')}"
                ahead = f"watch it with `cbe show {name}`, or stop it with `cbe stop {name}`"
                raise IsDriven(f"{name}: is running already ({process}); {ahead}", process)
            if waited_s > LEASE_S:
                return
            if waited_s > 2 * BEAT_S and not is_told:
                is_told = True
                log.warning(
                    "%s: process %s on %s has not ended and gives no sign; taking over in %.0f s",
                    *(self._folder.name, who.get("pid"), who.get("host"), LEASE_S - waited_s),
                )
            time.sleep(BEAT_S / 4)

    def _sign(self, epoch: int) -> object:
        """What changes as long as the driver of an epoch lives; "ended" where it has said so."""
        said = status(self._folder).plain
        if said.get("epoch") != epoch:
            return None
        return said.get("beats") if said.get("state") == "running" else "ended"

    def _is_gone(self, who: dict[str, Any]) -> bool:
        """Whether it was a process of this machine that has ended."""
        return who.get("host") == self._who["host"] and not runs(who.get("pid"), who.get("born"))

    def _beat(self) -> None:
        if self.superseded:
            return
        try:
            self.writer.check()
            known = self._progress.to_plain() if self._progress else {}
            self._say(state="running", **known)
            self.stop_asked = self.stop_asked or stop_was_asked(self._folder)
            self.outage.over("heartbeat")
        except Superseded as error:
            self.superseded = error
            self.on_superseded(error)
        except CbeError as error:
            self.outage.met("heartbeat", str(error))

    def _say(self, **known: Any) -> None:
        self.elapsed_s = known.get("elapsed_s", self.elapsed_s)
        self._beats += 1
        so_far = {"elapsed_s": self.elapsed_s} if self.elapsed_s else {}
        about = {"epoch": self.writer.epoch, "beats": self._beats, "beat": time.time()}
        content = json.dumps({**self._who, **about, **so_far, **known}, indent=1, default=str)
        self._folder.write(STATUS, content.encode())
