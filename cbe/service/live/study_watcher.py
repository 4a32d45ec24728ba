"""How all studies stand, read from the store once for all who ask, and told to those who listen."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cbe.errors import CbeError, InputError
from cbe.service.live.study_status import StudyStatus
from cbe.store.folder import Store
from cbe.store.index import NOTHING, Known
from cbe.store.states import FINAL, status
from cbe.study.overview import Details, details, is_current, note, overview, rested, stamp_of

LOOK_S = 1.0
REMOTE_S = 15.0  # between looks at a study at rest in a bucket
QUIET_S = 15.0  # after which a listener is told that the line still stands
STILL_HERE = b": still here\n\n"

Plain = dict[str, Any]
Stand = Callable[[Details], StudyStatus]

log = logging.getLogger("cbe.service")


@dataclass(frozen=True)
class Snapshot:
    """A study at one moment, in the form in which it is sent."""

    study_status: StudyStatus
    rows: Mapping[str, Plain]  # trials by name
    optuna: str
    version: int
    changed: tuple[str, ...]  # trials that differ from the snapshot before, whose version is `since`
    since: int
    status: Plain

    @property
    def name(self) -> str:
        return self.study_status.overview.study

    @property
    def state(self) -> str:
        return self.study_status.overview.state

    @cached_property
    def line(self) -> bytes:
        """The study in a list."""
        return encode(self.status)

    @cached_property
    def whole(self) -> bytes:
        return encode({**self.status, "optuna": self.optuna, "trials": list(self.rows.values())})

    @cached_property
    def events(self) -> bytes:
        """All of it, for a listener who knows nothing yet."""
        return event("study", self.line) + event("trials", encode({"trials": list(self.rows.values())}))

    @cached_property
    def news(self) -> bytes:
        """What is new to a listener who has the snapshot before."""
        rows = [self.rows[name] for name in self.changed]
        return event("study", self.line) + (event("trials", encode({"trials": rows})) if rows else b"")

    @cached_property
    def ended(self) -> tuple[tuple[str, str, str | None], ...]:
        """The trials that have ended: an answer changes with these alone."""
        return tuple(
            (name, row["state"], row["updated"]) for name, row in self.rows.items() if row["state"] in FINAL
        )


@dataclass
class _Seen:
    stamp: object
    looked: float
    found: Details
    snapshot: Snapshot
    whole: bool = True  # or without its trials, as the store's index has it
    revision: int | None = None  # of the row of the index that says the same


@dataclass
class StudyWatcher:
    """Looks at the store every second; readers are given what was seen last."""

    store: Store
    stand: Stand  # how the service sees a study that the store shows so
    latest: list[Snapshot] = field(default_factory=list)  # every study, the one first that was last heard of
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _known: Mapping[str, Known] = field(default_factory=dict)  # by the store's index, when it was last listed
    _news: list[tuple[str, Known, Mapping[str, Any]]] = field(default_factory=list)  # for the index
    _version: int = 0
    _listed: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turn: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    listeners: int = 0
    closed: bool = False
    problem: str | None = None  # why the store could not be read
    _trouble: str | None = None  # the same of a study, at the look that is under way

    def all(self) -> list[Snapshot]:
        """Every study, by name."""
        return [seen.snapshot for _, seen in sorted(self._seen.copy().items())]

    def fill(self, name: str) -> None:
        """Reads the trials of a study that the index alone has told of so far."""
        with self._lock:
            seen = self._seen.get(name)
            if seen and not seen.whole:
                self._seen[name] = self._see(name, seen, seen.stamp, self._read(name))

    def is_whole(self, name: str) -> bool:
        """Whether a study was seen with its trials."""
        seen = self._seen.get(name)
        return seen is not None and seen.whole

    def get(self, name: str) -> Snapshot | None:
        seen = self._seen.get(name)
        return seen.snapshot if seen else None

    async def start(self) -> None:
        with suppress(CbeError):  # a store that is away now may be there at the next look
            await self.look()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Lets all listeners go."""
        self.closed = True
        self._announce()
        if self._task:
            self._task.cancel()

    async def look(self) -> None:
        """Now, and not only at the next second."""
        await self._seen_anew(fresh=True)

    async def _seen_anew(self, *, fresh: bool) -> None:
        if await asyncio.to_thread(self._look, fresh):
            self._announce()

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._seen_anew(fresh=False)
            except CbeError as error:
                self.problem = str(error)
            except Exception as error:
                self.problem = f"the store cannot be looked at: {type(error).__name__}"
                log.exception("the store could not be looked at")

    def _announce(self) -> None:
        """Wakes all who listen; the next news will be another event."""
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    def _look(self, fresh: bool) -> bool:
        with self._lock:
            names = self._names(fresh)
            gone = self._seen.keys() - set(names)
            for name in gone:
                del self._seen[name]
            self._trouble = None
            changed = any([self._look_at_one(name) for name in names]) or bool(gone)
            self._note()
            self.problem = self._trouble
            if changed:
                self.latest = sorted(self.all(), key=lambda each: each.study_status.latest, reverse=True)
            return changed

    def _names(self, fresh: bool) -> list[str]:
        """The studies that are there; in a bucket, where to look is dear, not at every second."""
        if self.store.location.local and self._seen:
            return self.store.names()
        if fresh or time.monotonic() - self._listed > REMOTE_S:
            self._listed = time.monotonic()
            self._known = self.store.known()
            return list(self._known)
        return sorted(self._seen)

    def _look_at_one(self, name: str) -> bool:
        """One study that cannot be looked at keeps none of the others from it."""
        try:
            return self._look_at(name)
        except Exception as error:
            if isinstance(error, InputError) and not self.store.study(name).exists():  # deleted meanwhile
                return self._seen.pop(name, None) is not None
            if not isinstance(error, CbeError):
                log.exception("%s: could not be looked at", name)
            self._trouble = f"{name}: {error}"
            return False

    def _look_at(self, name: str) -> bool:
        """Whether a study has changed since it was last looked at."""
        seen, folder, now = self._seen.get(name), self.store.study(name), time.monotonic()
        known = self._known.get(name, NOTHING)
        if seen is None and (rests := rested(folder, known)) is not None:
            found = Details(rests, (), "")
            stamp = folder.stamp() if self.store.location.local else None
            self._seen[name] = _Seen(stamp, now, found, self._snapshot(found, None), False, known.revision)
            return True
        resting = seen is not None and not seen.snapshot.study_status.overview.under_way
        dear = seen is not None and resting and not self.store.location.local
        indexed = seen is not None and known.at_rest and seen.revision == known.revision
        if seen and dear and (indexed or now - seen.looked < REMOTE_S):
            if self.stand(seen.found) == seen.snapshot.study_status:
                return False
            resting = False
        stamp = folder.stamp()
        same = seen is not None and seen.stamp == stamp
        if seen and same and not resting:  # a driver that falls silent changes no file
            same = status(folder).state == seen.found.overview.state
        found = seen.found if seen and same else self._read(name)
        if seen and found is seen.found and self.stand(found) == seen.snapshot.study_status:
            seen.looked = now
            return False
        self._seen[name] = self._see(name, seen, stamp, found)
        return seen is None or self._seen[name].snapshot is not seen.snapshot

    def _see(self, name: str, seen: _Seen | None, stamp: object, found: Details) -> _Seen:
        snapshot = self._snapshot(found, seen.snapshot if seen else None)
        if seen and found is seen.found:
            return replace(seen, stamp=stamp, looked=time.monotonic(), snapshot=snapshot)
        return _Seen(stamp, time.monotonic(), found, snapshot)

    def _note(self) -> None:
        """Tells the index of studies that rest: the next service need not look at them."""
        news, self._news = self._news, []
        with suppress(CbeError):
            self.store.index.note(news)
            for name, known, _ in news:
                if name in self._seen:
                    self._seen[name].revision = known.revision + 1

    def _read(self, name: str) -> Details:
        folder = self.store.study(name)
        stamp, last, known = stamp_of(folder), status(folder), self._known.get(name, NOTHING)
        if name in self._seen and not last.alive:
            known = self.store.index.of(name)
        try:
            found = details(self.store, name)
            if not is_current(folder, known) and (row := note(folder, found.overview, last, stamp)):
                self._news.append((name, known, row))
            return found
        except InputError:  # its file is no study
            return Details(overview(self.store, name), (), "")

    def _snapshot(self, found: Details, before: Snapshot | None) -> Snapshot:
        study_status, plain = self.stand(found), found.to_plain()
        rows = {row["trial"]: row for row in plain["trials"]}
        status = study_status.to_plain()
        old = before.rows if before else {}
        changed = tuple(name for name, row in rows.items() if old.get(name) != row)
        if before and not changed and before.status == status:
            return before
        self._version += 1
        since = before.version if before else 0
        return Snapshot(study_status, rows, found.optuna, self._version, changed, since, status)

    async def listen(self) -> AsyncIterator[bytes]:
        """The news of all studies, as server-sent events: all of them first."""
        sent: dict[str, int] | None = None
        with self._listening():
            while not self.closed:
                turn, now = self._turn, {each.name: each for each in self.all()}
                known = sent or {}
                news = [each.line for name, each in now.items() if known.get(name) != each.version]
                gone = sorted(known.keys() - now.keys())
                if news or gone or sent is None:
                    parts = b",".join(news)
                    yield event("studies", b'{"studies":[' + parts + b'],"gone":' + encode(gone) + b"}")
                else:
                    yield STILL_HERE
                sent = {name: each.version for name, each in now.items()}
                await _next(turn)

    async def listen_to(self, name: str) -> AsyncIterator[bytes]:
        """The news of one study, as server-sent events, until it is deleted."""
        version, spoken = 0, time.monotonic()
        with self._listening():
            while not self.closed:
                turn, now = self._turn, self.get(name)
                if now is None:
                    yield event("gone", b"{}")
                    return
                if now.version != version:
                    yield now.news if version and now.since == version else now.events
                    version, spoken = now.version, time.monotonic()
                elif time.monotonic() - spoken >= QUIET_S:
                    yield STILL_HERE
                    spoken = time.monotonic()
                await _next(turn)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1


async def _next(turn: asyncio.Event) -> None:
    """Until there is news, or there has been none for a while."""
    with suppress(TimeoutError):
        await asyncio.wait_for(turn.wait(), QUIET_S)


def encode(plain: Any) -> bytes:
    return json.dumps(plain, allow_nan=False, separators=(",", ":"), default=str).encode()


def event(kind: str, data: bytes) -> bytes:
    """One server-sent event; JSON has no line breaks."""
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
