"""Keeps what is wanted and what runs in step: starts studies in turn, and again where a driver was lost."""

from __future__ import annotations

import logging
import math
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cbe.errors import CbeError
from cbe.service import submissions
from cbe.service.audit import Audit
from cbe.service.jobs import Job, Jobs, RayAway
from cbe.service.submissions import Submission
from cbe.service.turns import Begun, Waiting, in_turn
from cbe.store.folder import Store
from cbe.study.control import Status, status

LOSSES = 3  # drivers lost with their node after which a study is no longer started again by itself
LOOK_S = 1.0  # between looks at the jobs while any study runs or waits
IDLE_S = 10.0
REMOTE_S = 30.0  # between looks for new studies in a bucket

Event = Literal["finished", "failed", "budget", "halted"]
Tell = Callable[[Event, str, str | None], None]  # the event, the study and why

log = logging.getLogger("cbe.service")


@dataclass(frozen=True)
class Entry:
    """A submitted study: what is wanted of it, what its driver said last, and what Ray says of the driver."""

    study: str
    submission: Submission
    said: Status
    job: Job | None

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.active

    @property
    def heard(self) -> Status:
        """What the driver that was started last has said; an earlier one's words do not count."""
        started = self.submission.started
        told = started is not None and float(self.said.plain.get("beat", 0)) >= started.timestamp()
        return self.said if told else Status({})

    @property
    def waiting(self) -> bool:
        return self.submission.wanted == "run" and self.submission.started is None and not self.running


def settled(entry: Entry) -> tuple[Submission, Event | None]:
    """The submission as it is once its driver has ended, and what there is to tell; unchanged till then."""
    submission, said, job = entry.submission, entry.heard, entry.job
    if submission.wanted != "run" or submission.started is None or entry.running or said.alive:
        return submission, None
    if said.state == "finished":
        return replace(submission, wanted="rest", failed=None), "finished"
    if said.state == "halted":
        spent = str(said.plain.get("halted") or "").startswith("budget.")
        return replace(submission, wanted="rest", failed=None), "budget" if spent else "halted"
    if job is not None and job.status == "stopped":
        return replace(submission, wanted="rest", failed=None), "halted"
    if job is None or job.lost:
        losses = submission.losses + 1
        if losses <= LOSSES:
            return replace(submission, started=None, losses=losses), None
        why = f"its driver was lost with its node {losses} times; look at the cluster, then resume it"
        return replace(submission, wanted="rest", losses=losses, failed=why), "failed"
    return replace(submission, wanted="rest", failed=_reason(said, job)), "failed"


def _reason(said: Status, job: Job) -> str:
    """Why a driver failed: its own last word, or how Ray saw it end."""
    word = said.plain.get("why") if said.plain.get("state") == "interrupted" else None
    if word:
        return str(word)
    code = job.exit_code or 0
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
        return f"its driver was killed by {name}{hint}; what was reported is kept; resume it"
    last = [line for line in job.message.strip().splitlines() if line.strip()]
    return f"its driver ended with exit code {code}: {last[-1].strip() if last else 'without a word'}"


class Keeper:
    """Runs in a thread of its own for as long as the service does."""

    def __init__(
        self, store: Store, jobs: Jobs, audit: Audit, tell: Tell, limit: int, folder: Path | None = None
    ) -> None:
        self._store, self._jobs, self._audit, self._tell = store, jobs, audit, tell
        self._limit = limit
        self._folder = folder or Path.cwd()
        self.lock = threading.RLock()  # submissions are written by one at a time
        self.problem: str | None = None  # why Ray or the store could not be asked
        self.entries: Mapping[str, Entry] = {}
        self.places: Mapping[str, int] = {}  # in the queue, from 1 on
        self.jobs: Mapping[str, Job] = {}
        self._known: list[str] = []
        self._listed = -math.inf
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        """Lets the next look be now."""
        self._wake.set()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                self.look()
                self.problem = None
            except CbeError as error:
                if self.problem != str(error):
                    log.warning("%s", str(error).replace("\n", " "))
                self.problem = str(error)
            except Exception:
                log.exception("the queue could not be looked after")
            busy = any(entry.waiting or entry.running for entry in self.entries.values())
            self._wake.wait(LOOK_S if busy or self.problem else IDLE_S)
            self._wake.clear()

    def look(self) -> None:
        """Once: settles what has ended and starts what may start."""
        jobs = self._jobs.all()
        with self.lock:
            entries = self._entries(jobs)
            self.jobs, self.entries = jobs, entries
            for name, entry in entries.items():
                submission, event = settled(entry)
                if submission != entry.submission:
                    entries[name] = replace(entry, submission=self._settle(entry, submission, event))
            order = self._queue(entries)
            others = [job for name, job in jobs.items() if job.active and name not in entries]
            free = max(0, self._limit - sum(entry.running for entry in entries.values()) - len(others))
            for waiting in order[:free]:
                entry = entries[waiting.study]
                entries[waiting.study] = replace(entry, submission=self._start(entry))
            self.places = {each.study: place for place, each in enumerate(order[free:], start=1)}

    def rest(self) -> None:
        """Before the cluster itself ends: what runs waits for its turn again, and counts as no loss."""
        with self.lock:
            for entry in self.entries.values():
                if entry.running and entry.submission.wanted == "run":
                    again = replace(entry.submission, started=None)
                    submissions.write(self._store.study(entry.study), again)

    def refresh(self, name: str) -> None:
        """Takes in at once what was just written of a study, and where it waits now."""
        with self.lock:
            entries = {**self.entries}
            entries.pop(name, None)
            folder = self._store.study(name)
            submission = submissions.read(folder) if folder.exists() else None
            if submission is not None:
                job = self.jobs.get(name)
                with suppress(RayAway):  # then what was known of it must do
                    job = self._jobs.find(name)
                entries[name] = Entry(name, submission, status(folder), job)
            self.entries = entries
            self.places = {each.study: place for place, each in enumerate(self._queue(entries), start=1)}

    def _entries(self, jobs: Mapping[str, Job]) -> dict[str, Entry]:
        """All submitted studies. Of those that rest nothing is read: only this service changes that."""
        found = {}
        for name in self._names():
            folder, known = self._store.study(name), self.entries.get(name)
            submission = known.submission if known else submissions.read(folder)
            if submission is None:
                continue
            rests = known is not None and submission.wanted == "rest"
            said = known.said if known and rests else status(folder)
            found[name] = Entry(name, submission, said, jobs.get(name))
        return found

    def _names(self) -> list[str]:
        """The studies that may have been submitted; in a bucket not looked for at every second."""
        if self._store.location.local or time.monotonic() - self._listed > REMOTE_S:
            self._listed = time.monotonic()
            self._known = self._store.names()
            return self._known
        return sorted({*self._known, *self.entries})

    def _queue(self, entries: Mapping[str, Entry]) -> list[Waiting]:
        waiting = [
            Waiting(name, entry.submission.owner, entry.submission.submitted, entry.submission.priority)
            for name, entry in entries.items()
            if entry.waiting
        ]
        begun = [
            Begun(entry.submission.owner, entry.submission.started, entry.running)
            for entry in entries.values()
            if entry.submission.started is not None
        ]
        return in_turn(waiting, begun)

    def _settle(self, entry: Entry, submission: Submission, event: Event | None) -> Submission:
        """Puts down what has become of a study, and tells it once; gives the submission as it is then."""
        if event is None:
            log.warning("%s: its driver was lost; it is started again (%d)", entry.study, submission.losses)
            self._audit.record("driver_lost", "service", entry.study, losses=submission.losses)
            submissions.write(self._store.study(entry.study), submission)
            return submission
        why = submission.failed or entry.heard.plain.get("halted")
        log.info("%s: %s", entry.study, event)
        self._audit.record(event, "service", entry.study, why=why)
        if event not in submission.told:
            self._tell(event, entry.study, why)
            submission = replace(submission, told=(*submission.told, event))
        submissions.write(self._store.study(entry.study), submission)
        return submission

    def _start(self, entry: Entry) -> Submission:
        """Its time is written before the driver is started: what happens between is a loss, and is seen."""
        name, submission = entry.study, replace(entry.submission, started=datetime.now(UTC), failed=None)
        submissions.write(self._store.study(name), submission)
        command = [sys.executable, "-m", "cbe", "resume", name]
        command += ["--store", self._store.uri, "--address", "auto"]
        log.info("%s: starts (%s)", name, shlex.join(command[3:]))
        about = {"cbe_store": self._store.uri, "cbe_owner": submission.owner}
        try:
            self._jobs.submit(name, command, about, folder=self._folder)
        except CbeError:
            submissions.write(self._store.study(name), entry.submission)  # nothing is lost
            raise
        self._audit.record("started", "service", name, owner=submission.owner)
        return submission
