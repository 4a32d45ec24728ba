"""Keeps what is wanted and what runs in step: starts studies in turn, and again where a driver was lost."""

from __future__ import annotations

import logging
import math
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cbe.errors import CbeError, InputError
from cbe.service.auth.audit import Audit
from cbe.service.queue import submissions
from cbe.service.queue.entry import Entry, Event, settled
from cbe.service.queue.fair_queue import Begun, Waiting, in_turn
from cbe.service.queue.ray_jobs import Job, Jobs, RayAway, unused
from cbe.service.queue.submissions import Submission
from cbe.store.folder import Store
from cbe.store.states import Status, status
from cbe.study.control import stop_was_asked
from cbe.study.overview import is_current

LOOK_S = 1.0  # between looks at the jobs while any study runs or waits
IDLE_S = 10.0
STOP_S = 5.0
TIDY_S = 600.0
REMOTE_S = 30.0  # between looks for new studies in a bucket

Notify = Callable[[str, Submission], None]  # the study, and what is unsent of it

log = logging.getLogger("cbe.service")


class Reconciler:
    """Runs in a thread of its own for as long as the service does."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        audit: Audit,
        tell: Notify,
        limit: int,
        folder: Path | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`check` raises where another service has taken over, and is asked before anything is changed."""
        self._store, self._jobs, self._audit, self._tell = store, jobs, audit, tell
        self._limit, self._check = limit, check
        self._folder = folder or Path.cwd()
        self.lock = threading.RLock()  # submissions are written by one at a time
        self.problem: str | None = None  # why Ray or the store could not be asked
        self.entries: Mapping[str, Entry] = {}
        self.positions: Mapping[str, int] = {}  # in the queue, from 1 on
        self.jobs: Mapping[str, Job] = {}  # by id
        self._telling: set[str] = set()
        self._without: set[str] = set()  # studies that were not submitted here
        self._known: list[str] = []
        self._listed = self._tidied = -math.inf
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="reconciler", daemon=True)

    def start(self) -> None:
        """Knows at once what the store has of all submissions; what runs of them Ray tells a moment later."""
        with suppress(CbeError), self.lock:
            self._take_from_index()
            self.entries = self._entries({})
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(STOP_S)

    def wake(self) -> None:
        """Lets the next look be now."""
        self._wake.set()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                self.look()
                self.problem = None
                self._tidy()
            except CbeError as error:
                if self.problem != str(error):
                    log.warning("%s", str(error))
                self.problem = str(error)
            except Exception as error:
                self.problem = f"the queue cannot be looked after: {type(error).__name__}"
                log.exception("the queue could not be looked after")
            busy = any(each.submission.wanted == "run" or each.running for each in self.entries.values())
            self._wake.wait(LOOK_S if busy or self.problem else IDLE_S)
            self._wake.clear()

    def _tidy(self) -> None:
        """Now and then: the record of what was done becomes few files."""
        if time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()
            self._audit.tidy()
            self._without.clear()
            with self.lock:
                self._take_from_index()

    def look(self) -> None:
        """Once: settles what has ended and starts what may start."""
        jobs = self._jobs.all()
        with self.lock:
            entries = self._entries(jobs)
            self.jobs, self.entries = jobs, entries
            for name, entry in entries.items():
                submission, event = settled(entry)
                if event is not None:
                    entries[name] = replace(entry, submission=self._settle(entry, submission, event))
                if submission.unsent and name not in self._telling:
                    self._telling.add(name)
                    self._tell(name, submission)
            order = self._queue(entries)
            free = max(0, self._limit - self._jobs.active())
            for waiting in order[:free]:
                entry = entries[waiting.study]
                entries[waiting.study] = replace(entry, submission=self._start(entry))
            self.positions = {each.study: position for position, each in enumerate(order[free:], start=1)}

    def mark_sent(self, name: str, event: str | None) -> None:
        """Notes that the unsent event of a study was sent; what has happened since is sent in its turn."""
        with self.lock:
            self._telling.discard(name)
            folder = self._store.study(name)
            submission = submissions.read(folder)
            if submission is not None and submission.unsent == event:
                submissions.write(folder, replace(submission, unsent=None))
                self.refresh(name)

    def rest(self) -> None:
        """Before the cluster itself ends: what runs waits for its turn again, and counts as no loss."""
        with self.lock:
            for entry in self.entries.values():
                if not entry.running or entry.heard.over:
                    continue
                asked = entry.stop_asked or stop_was_asked(self._store.study(entry.study))
                wanted = replace(entry.submission, started=None, wanted="rest" if asked else "run")
                submissions.write(self._store.study(entry.study), wanted)

    def refresh(self, name: str) -> None:
        """Takes in at once what was just written of a study, and where it waits now."""
        with self.lock:
            entries = {**self.entries}
            entries.pop(name, None)
            folder = self._store.study(name)
            self._without.discard(name)
            with suppress(RayAway):  # then what was known must do
                self.jobs = self._jobs.all()
            entry = self._entry(name, None, self.jobs) if folder.exists() else None
            if entry is not None:
                entries[name] = entry
            self.entries = entries
            self.positions = {each.study: n for n, each in enumerate(self._queue(entries), start=1)}

    def _entries(self, jobs: Mapping[str, Job]) -> dict[str, Entry]:
        """All submitted studies. Of those that rest nothing is read: only this service changes that."""
        found = {}
        for name in self._names():
            known = self.entries.get(name)
            if known is not None and known.submission.wanted == "rest":
                found[name] = replace(known, job=jobs.get(known.submission.job or ""))
            elif name not in self._without:
                entry = self._entry(name, known.submission if known else None, jobs)
                if entry is None:
                    self._without.add(name)
                else:
                    found[name] = entry
        return found

    def _take_from_index(self) -> None:
        """Of studies that rest, by the store's index, nothing else is read."""
        found = {**self.entries}
        for name, known in self._store.known().items():
            if name in found or not is_current(self._store.study(name), known):
                continue
            submission = submissions.parse(known.submission)
            if submission is None:
                self._without.add(name)
            elif submission.wanted == "rest":
                found[name] = Entry(name, submission, Status({}), None)
        self.entries = found

    def _entry(self, name: str, submission: Submission | None, jobs: Mapping[str, Job]) -> Entry | None:
        folder = self._store.study(name)
        submission = submission or submissions.read(folder)
        if submission is None:
            return None
        job = jobs.get(submission.job or "")
        return Entry(name, submission, status(folder), job, stop_was_asked(folder))

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

    def _settle(self, entry: Entry, submission: Submission, event: Event) -> Submission:
        """Puts down what has become of a study."""
        self._check()
        reason = submission.failed or entry.heard.plain.get("stop_reason")
        submissions.write(self._store.study(entry.study), submission)
        log.log(logging.WARNING if submission.failed else logging.INFO, "%s: %s", entry.study, event)
        self._audit.record(f"driver_{event}", "service", entry.study, reason=reason, losses=submission.losses)
        return submission

    def _start(self, entry: Entry) -> Submission:
        """The job's id is written before it is started: what happens between is a loss, and is seen."""
        self._check()
        name, folder = entry.study, self._store.study(entry.study)
        beat, job = entry.said.plain.get("beat"), unused(name)
        submission = replace(
            entry.submission, started=datetime.now(UTC), job=job, beat=beat, failed=None, unsent=None
        )
        submissions.write(folder, submission)
        command = [sys.executable, "-m", "cbe", "resume", name]
        command += ["--store", self._store.uri, "--address", "auto"]
        log.info("%s: starts (%s)", name, shlex.join(command[3:]))
        try:
            about = {"cbe_owner": submission.owner}
            running = self._jobs.submit(name, command, about, id=job, folder=self._folder)
        except InputError as error:  # as when the cluster wants its token
            submission = replace(submission, wanted="rest", failed=str(error), unsent="failed")
            submissions.write(folder, submission)
            return submission
        except RayAway:
            with suppress(RayAway):  # where it cannot say either, the next look will show whether it runs
                if job not in self._jobs.all():
                    submission = entry.submission
                    submissions.write(folder, submission)
            self.entries = {**self.entries, name: replace(entry, submission=submission)}
            raise
        if running != job:  # an earlier one that nobody had known of
            submission = replace(submission, job=running)
            submissions.write(folder, submission)
        self._audit.record("started", "service", name, owner=submission.owner)
        return submission
