"""What can be done with the studies of a store: submitted, stopped, resumed, amended, deleted.

Nothing here is lost by a restart: the store holds the desired state; Ray runs the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cbe.errors import InputError
from cbe.report.best import best
from cbe.service import isolated_tasks
from cbe.service.auth.audit import Audit
from cbe.service.auth.failures import Failures
from cbe.service.auth.tokens import Holder, Role, Tokens
from cbe.service.isolated_pool import IsolatedPool
from cbe.service.live.answer_cache import AnswerCache
from cbe.service.live.study_status import StudyStatus
from cbe.service.live.study_watcher import StudyWatcher
from cbe.service.live.webhooks import Notice, Webhooks
from cbe.service.queue import submissions
from cbe.service.queue.entry import Entry, state_of
from cbe.service.queue.ray_jobs import Jobs, RayAway
from cbe.service.queue.reconciler import Reconciler
from cbe.service.queue.submissions import Submission
from cbe.service.web.http_errors import Conflict, Forbidden, NotFound, Taken
from cbe.spec import StudyConfig
from cbe.spec.changes import FREE_IN_A_STUDY
from cbe.spec.files import setting_value
from cbe.spec.settings import MOST_TRIALS
from cbe.store.folder import Store, StudyFolder
from cbe.store.states import status
from cbe.study.control import STOP, ask_to_stop, stop_was_asked
from cbe.study.lifecycle import amend, begin, differing, journal
from cbe.study.overview import Details
from cbe.study.retry import ask_to_retry, require_failed

AT_ONCE = 4  # separate processes for checks and reports
QUERIES = 2  # and for SQL, which can be made to last
CHECK_S = 10.0  # for reading a file: one that takes longer was made to
PRIORITIES = range(-100, 101)
OURS = ("storage", "data.root", "name")  # what the service alone says of a study
LOCAL = Holder("local", Role.admin, "")  # callers on this machine, where there are no tokens

log = logging.getLogger("cbe.service")


@dataclass
class Service:
    store: Store
    jobs: Jobs
    limit: int = 2  # studies that run at once
    webhooks: Webhooks = field(default_factory=lambda: Webhooks([]))
    url: str = ""  # of the service's own page, for notices and commands
    is_ours: Callable[[], object] = lambda: None  # raises where another service has taken over the store
    folder: Path = field(default_factory=Path.cwd)  # where drivers work: relative paths of data are below it
    audit: Audit = field(init=False)
    tokens: Tokens = field(init=False)
    failures: Failures = field(default_factory=Failures)
    reconciler: Reconciler = field(init=False)
    study_watcher: StudyWatcher = field(init=False)
    answer_cache: AnswerCache = field(default_factory=AnswerCache)
    isolated: IsolatedPool = field(default_factory=lambda: IsolatedPool(AT_ONCE))
    queries: IsolatedPool = field(default_factory=lambda: IsolatedPool(QUERIES, died=InputError))
    plans: IsolatedPool = field(default_factory=lambda: IsolatedPool(1))
    _post: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "webhooks"))

    def __post_init__(self) -> None:
        self.audit, self.tokens = Audit(self.store), Tokens(self.store)
        self.reconciler = Reconciler(
            self.store, self.jobs, self.audit, self._tell, self.limit, self.folder, self.is_ours
        )
        self.study_watcher = StudyWatcher(self.store, self.study_status)

    def known(self, name: str) -> StudyFolder:
        """A study's folder; refuses a name that the store does not have."""
        folder = self.store.study(name)
        if not folder.exists():
            raise NotFound(f"study {name}: there is none of that name; see `cbe ls`, or /api/studies")
        return folder

    async def find(self, name: str) -> StudyFolder:
        """The same; the store is asked only about a study that was not seen yet, or without its trials."""
        if self.study_watcher.get(name) is not None:
            if not self.study_watcher.is_whole(name):
                await asyncio.to_thread(self.study_watcher.fill, name)
            return self.store.study(name)
        return await asyncio.to_thread(self.known, name)

    def study_status(self, found: Details) -> StudyStatus:
        """A study as the service sees it: its state in the store, in the queue and on the cluster."""
        overview = found.overview
        entry = self.reconciler.entries.get(overview.study)
        if entry is None:
            return StudyStatus(overview, owner=None, priority=0, submitted=None, queue_position=None)
        folder, said = self.store.study(overview.study), overview.state
        asked = said == "running" and stop_was_asked(folder)
        if said == "running" and not asked:  # a driver that has heard it and has ended takes the wish away
            said = status(folder).state
        state, reason = state_of(entry, said, overview.reason, asked)
        wanted = entry.submission
        position = self.reconciler.positions.get(overview.study) if state == "queued" else None
        seen = replace(overview, state=state, reason=reason)
        return StudyStatus(seen, wanted.owner, wanted.priority, wanted.submitted, position)

    async def check(self, text: str, is_json: bool = False) -> dict[str, Any]:
        """What is wrong with a study file, or what it asks for and its values; see `isolated_tasks.check`."""
        given = (text, self.store.uri, is_json)
        found: dict[str, Any] = await self.isolated.call(isolated_tasks.check, *given, timeout_s=CHECK_S)
        return found

    def submit(self, values: Mapping[str, Any], holder: Holder, priority: int = 0) -> tuple[str, bool]:
        """Takes the values of a checked file into the queue; says the study's name, and whether it is new.

        The same file under the same name is the same study, however often it is sent.
        """
        self._may_have(priority, holder)
        study = StudyConfig.model_validate(values)
        with self.reconciler.lock:
            folder = self.store.study(study.name)
            if folder.exists():
                error = differing(study, folder, f"study {study.name}")
                if error is not None:
                    raise Taken(error.faults)
                return study.name, False
            isolated_tasks.require_seen(study, self.folder)
            # Its submission comes first: without the file there is no study, and nobody sees half of one.
            submissions.write(folder, Submission(holder.name, datetime.now(UTC), priority))
            begin(study, self.store)
            self.audit.record("submitted", holder.name, study.name, priority=priority)
            self._noted(study.name)
        return study.name, True

    def stop(self, name: str, holder: Holder, *, now: bool = False) -> None:
        """Takes a study out of the queue, or stops it in order; `now` does not wait for its trials."""
        with self.reconciler.lock:
            folder, submission = self._own(name, holder)
            entry = self._entry(name)
            alive = status(folder).alive
            if submission and entry and entry.waiting:
                submissions.write(folder, replace(submission, wanted="rest"))
            elif alive and not now:
                ask_to_stop(folder)
            elif entry and entry.running:
                self.jobs.stop(name)
            else:
                raise Conflict(f"{name}: is not running; there is nothing to stop")
            self.audit.record("stop_asked", holder.name, name, now=now)
            self._noted(name)

    def resume(
        self,
        name: str,
        holder: Holder,
        settings: Mapping[str, Any] | None = None,
        retry: Sequence[str] = (),
    ) -> None:
        """Puts a study into the queue again, with more budget or another space where that is given.

        `retry` names failed trials to try again.
        """
        with self.reconciler.lock:
            folder, submission = self._own(name, holder)
            entry = self._entry(name)
            if (
                entry
                and (entry.waiting or (entry.running and not self._ends(entry)))
                and not (settings or retry)
            ):
                return  # it goes on already
            self._rests(name, entry)
            if retry:
                require_failed(folder, retry)
            self._amend(folder, settings)
            ask_to_retry(folder, retry)
            if status(folder).state == "finished":
                raise Conflict(f"{name}: is finished; give it more to do: set budget.trials higher")
            new = Submission(holder.name, datetime.now(UTC))
            last = submission or new
            wanted = replace(new, owner=last.owner, priority=last.priority, submitted=last.submitted)
            folder.delete(STOP)  # an earlier wish to stop, which nobody has heard
            submissions.write(folder, wanted)
            asked = {"settings": dict(settings or {}), **({"retry": list(retry)} if retry else {})}
            self.audit.record("resumed", holder.name, name, **asked)
            self._noted(name)

    def amend(
        self, name: str, holder: Holder, settings: Mapping[str, Any] | None, priority: int | None
    ) -> None:
        """Changes what may change of a study that does not run: its budget, its space, its priority."""
        with self.reconciler.lock:
            folder, submission = self._own(name, holder)
            if priority is not None:
                self._may_have(priority, holder)
                if submission is None:
                    raise Conflict(f"{name}: was not submitted to this service; resume it first")
            if settings:
                entry = self._entry(name)
                if entry is None or not entry.waiting:
                    self._rests(name, entry)
                self._amend(folder, settings)
            if submission and priority is not None:
                submissions.write(folder, replace(submission, priority=priority))
            self.audit.record("amended", holder.name, name, settings=dict(settings or {}), priority=priority)
            self._noted(name)

    def delete(self, name: str, holder: Holder) -> None:
        """Removes a study with all its results."""
        with self.reconciler.lock:
            folder, _ = self._own(name, holder)
            self._rests(name, self._entry(name))
            self.audit.record("deleted", holder.name, name)
            folder.remove()
            (self.folder / journal(folder)).unlink(missing_ok=True)  # of a store in a bucket it lies here
            with suppress(RayAway):  # what it printed is lost with the cluster anyway
                self.jobs.delete(name)
            self._noted(name)

    def concurrency(self, values: Mapping[str, Any]) -> int:
        """How many trials of a study the cluster, as large as it is now, holds at once."""
        wanted, have = StudyConfig.model_validate(values).resources, self.jobs.resources()["total"]
        fits = [MOST_TRIALS, have.get("CPU", 0) / (wanted.workers * wanted.cpus)]
        if wanted.gpus or (wanted.gpus is None and have.get("GPU")):
            fits.append(have.get("GPU", 0) / (wanted.workers * (wanted.gpus or 1)))
        return wanted.concurrent or max(1, int(min(fits) + 1e-9))

    def _own(self, name: str, holder: Holder) -> tuple[StudyFolder, Submission | None]:
        folder = self.known(name)
        submission = submissions.read(folder)
        mine = submission is not None and submission.owner == holder.name
        if not (holder.role is Role.admin or (mine and holder.role.allows(Role.submit))):
            whose = f"{submission.owner}'s" if submission else "not submitted by anybody here"
            raise Forbidden(f"{name}: is {whose}; ask them, or somebody with the role admin")
        return folder, submission

    def _may_have(self, priority: int, holder: Holder) -> None:
        if priority not in PRIORITIES:
            raise InputError(
                f"priority {priority}: wanted a whole number of {PRIORITIES[0]} to {PRIORITIES[-1]}; give 0"
            )
        if priority > 0 and holder.role is not Role.admin:
            raise Forbidden(f"priority {priority}: above 0 is for the role admin; give 0 or less")

    def _rests(self, name: str, entry: Entry | None) -> None:
        """Refuses to touch a study that waits or runs."""
        if entry and entry.waiting:
            raise Conflict(f"{name}: waits in the queue; stop it first")
        if entry and entry.running and self._ends(entry):
            raise Conflict(f"{name}: its driver is just ending; try again in some seconds")
        if (entry and entry.running) or status(self.store.study(name)).alive:
            raise Conflict(f"{name}: is running; stop it first")

    def _ends(self, entry: Entry) -> bool:
        """Whether a driver that still runs was asked to stop, or has said that it does."""
        return entry.stop_asked or entry.heard.over

    def _amend(self, folder: StudyFolder, settings: Mapping[str, Any] | None) -> None:
        if not settings:
            return
        for key in OURS:
            if any(given == key or given.startswith(f"{key}.") for given in settings):
                raise InputError(f"{key}: cannot be changed through the service; leave it out")
        given = [f"{key}={setting_value(value)}" for key, value in settings.items()]
        amend(folder, settings=given, free=FREE_IN_A_STUDY - {*OURS})

    def _entry(self, name: str) -> Entry | None:
        self.reconciler.refresh(name)
        return self.reconciler.entries.get(name)

    def _noted(self, name: str) -> None:
        self.reconciler.refresh(name)
        self.reconciler.wake()

    def _tell(self, name: str, submission: Submission) -> None:
        """Sends a notice in the background: a slow receiver keeps no study waiting."""
        self._post.submit(self._send, name, submission)

    def _send(self, name: str, submission: Submission) -> None:
        """Once it is sent, or every try has failed, it counts as told; till then a new service tells it."""
        try:
            if self.webhooks.targets:
                for line in self.webhooks.send(self._notice(name, submission)):
                    log.warning("%s", line)
            self.reconciler.mark_sent(name, submission.unsent)
        except Exception:
            log.exception("%s: what became of it could not be told", name)

    def _notice(self, name: str, submission: Submission) -> Notice:
        folder = self.store.study(name)
        sentence = metric = value = None
        with suppress(InputError):  # there may be no answer yet
            answer = best(folder)
            sentence, metric, value = answer.sentence, answer.metric, answer.ranked[0].mean
        return Notice(
            event=submission.unsent or "finished",
            study=name,
            state=status(folder).state,
            reason=submission.failed or status(folder).plain.get("stop_reason"),
            sentence=sentence,
            metric=metric,
            best=value,
            url=f"{self.url}/studies/{name}" if self.url else None,
        )

    def close(self) -> None:
        for each in (self.isolated, self.queries, self.plans):
            each.close()
        self.reconciler.stop()
        self._post.shutdown(wait=False, cancel_futures=True)
