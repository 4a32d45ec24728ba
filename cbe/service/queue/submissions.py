"""The desired state of a study: stored beside it, so that no restart loses it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from cbe.store.folder import SUBMISSION, StudyFolder


@dataclass(frozen=True)
class Submission:
    owner: str
    submitted: datetime
    priority: int = 0
    wanted: Literal["run", "rest"] = "run"
    started: datetime | None = None  # when a driver was last started for it; None: it still waits
    job: str | None = None  # the id of that driver's job; of earlier ones nothing is to be learned
    losses: int = 0  # drivers that were lost with their node since somebody last asked for the study
    beat: float | None = None  # the word that stood there when it was: what an earlier driver said
    failed: str | None = None  # why the last driver failed
    unsent: Literal["finished", "failed", "budget"] | None = None  # the event that webhooks do not know yet


_PLAIN = TypeAdapter(Submission)


def read(folder: StudyFolder) -> Submission | None:
    """The study's submission; None where nobody submitted it to a service, or the file is none."""
    return parse(folder.read(SUBMISSION))


def parse(content: str | bytes | None) -> Submission | None:
    try:
        return _PLAIN.validate_json(content) if content else None
    except ValidationError:
        return None


def write(folder: StudyFolder, submission: Submission) -> None:
    with folder.changing():
        folder.write(SUBMISSION, _PLAIN.dump_json(submission, indent=1))
