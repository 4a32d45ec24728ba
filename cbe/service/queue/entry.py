"""A submitted study: what is wanted of it, what its driver said, what Ray says, and what follows."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Literal

from cbe.service.queue.ray_jobs import Job
from cbe.service.queue.submissions import Submission
from cbe.store.redact import redact
from cbe.store.states import Status

LOSSES = 3  # drivers lost with their node after which a study is no longer started again by itself
Event = Literal["finished", "failed", "budget", "stopped", "lost"]


@dataclass(frozen=True)
class Entry:
    """A submitted study: what is wanted of it, what its driver said last, and what Ray says of the driver."""

    study: str
    submission: Submission
    said: Status
    job: Job | None
    stop_asked: bool = False

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.active

    @property
    def heard(self) -> Status:
        """What the driver that was started last has said; an earlier one's words do not count."""
        old = self.submission.started is None or self.said.plain.get("beat") == self.submission.beat
        return Status({}) if old else self.said

    @property
    def waiting(self) -> bool:
        return self.submission.wanted == "run" and self.submission.started is None and not self.running


def settled(entry: Entry) -> tuple[Submission, Event | None]:
    """The submission as it is once its driver has ended, and what has happened; unchanged till then."""
    submission, said, job = entry.submission, entry.heard, entry.job
    if submission.wanted != "run" or submission.started is None or entry.running or entry.said.alive:
        return submission, None
    rests = replace(submission, wanted="rest", failed=None)
    # A driver that finds nothing more to do says so by its exit code alone.
    done = job is not None and job.status == "succeeded" and entry.said.state == "finished"
    if done or said.state == "finished":
        return replace(rests, unsent="finished"), "finished"
    broken, reason = said.plain.get("broken"), str(said.plain.get("stop_reason") or "")
    if said.state == "stopped" and broken:
        return replace(rests, failed=str(broken), unsent="failed"), "failed"
    if said.state == "stopped" and reason.startswith("budget."):
        return replace(rests, unsent="budget"), "budget"
    signalled = reason == "interrupted"  # by somebody, or because its node was about to go
    if entry.stop_asked or (job and job.status == "stopped") or (said.state == "stopped" and not signalled):
        return rests, "stopped"
    if job is None or job.lost or signalled:
        losses = submission.losses + 1
        if losses <= LOSSES:
            return replace(submission, started=None, losses=losses), "lost"
        reason = f"its driver was lost with its node {losses} times; look at the cluster, then resume it"
        return replace(rests, losses=losses, failed=reason, unsent="failed"), "failed"
    return replace(rests, failed=_reason(said, job), unsent="failed"), "failed"


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
    said_last = redact(last[-1].strip()) if last else "without a word"
    return f"its driver ended with exit code {code}: {said_last}"


def state_of(entry: Entry, said: str, reason: str | None, stop_asked: bool) -> tuple[str, str | None]:
    """A study's state and the reason, out of what is wanted, what its driver said and what Ray says."""
    wanted = entry.submission
    if said == "running":
        return ("stopping" if stop_asked or reason else "running"), reason
    if entry.running:
        ending = {"finished": "finished", "stopped": "stopping"}  # the driver only puts its things away
        return ending.get(entry.heard.state, "starting"), reason if entry.heard.state in ending else None
    if entry.waiting:
        lost = f"its driver was lost with its node ({wanted.losses}); it is started again"
        return "queued", lost if wanted.losses else None
    if wanted.wanted == "run" and (said in ("new", "interrupted") or not entry.heard.plain):
        return "starting", None  # whatever an earlier driver has said
    if wanted.failed and said != "finished":
        return "failed", wanted.failed
    return said, reason or ("taken out of the queue" if said == "new" else None)
