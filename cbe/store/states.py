"""Which states trials and studies have, whether a study's driver lives, and what that makes of its trials.

A driver writes to `status.json` every few seconds. One that was killed leaves its study and its trials
`running` there: whoever reads a study asks this module how it stands now.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from cbe.store.folder import StudyFolder

TrialState = Literal["completed", "pruned", "running", "interrupted", "failed", "infeasible"]
TRIAL_STATES: tuple[TrialState, ...] = get_args(TrialState)  # in the order in which they are listed
OPEN: tuple[TrialState, ...] = ("running", "interrupted")  # goes on, now or when its study is resumed
FINAL = tuple(state for state in TRIAL_STATES if state not in OPEN)
TRAINED: tuple[TrialState, ...] = ("completed", "pruned")  # ended with a model
COUNTED: tuple[TrialState, ...] = (*TRAINED, "failed")  # ended as one of the trials that the study is to run

UNDER_WAY = ("running", "starting", "stopping", "queued")  # a study that goes on by itself
STUDY_STATES = (*UNDER_WAY, "new", "finished", "stopped", "interrupted", "failed", "unreadable")

STATUS = "status.json"
SILENT_S = 20.0  # a driver on another machine that was not heard for so long is gone


@dataclass(frozen=True)
class Status:
    """The last that was heard of a study's driver."""

    plain: dict[str, Any]

    @property
    def state(self) -> str:
        """new, running, finished, stopped, or interrupted where a driver is gone without a word."""
        said = str(self.plain.get("state", "new"))
        return "interrupted" if said == "running" and not self.alive else said

    @property
    def alive(self) -> bool:
        """Whether a driver runs: by its process on this machine, by what was heard of it on another."""
        if self.plain.get("state") != "running":
            return False
        if self.plain.get("host") == socket.gethostname():
            return _runs(self.plain.get("pid"), self.plain.get("born"))
        return time.time() - _number(self.plain.get("beat")) < SILENT_S

    @property
    def over(self) -> bool:
        """Whether the driver has ended in order."""
        return self.state in ("finished", "stopped")

    @property
    def why(self) -> str | None:
        """Why it stops, has stopped or was interrupted."""
        why = self.plain.get("stop_reason") or self.plain.get("why")
        return str(why) if why else None

    @property
    def heard(self) -> datetime | None:
        """When it last said anything."""
        beat = _number(self.plain.get("beat"))
        try:
            return datetime.fromtimestamp(beat, UTC) if beat else None
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def elapsed_s(self) -> float:
        """How long drivers have run, all starts of the study together."""
        return max(0.0, _number(self.plain.get("elapsed_s")))


def status(folder: StudyFolder) -> Status:
    content = folder.read(STATUS)
    try:
        plain = json.loads(content) if content else {}
    except ValueError:  # no driver writes such a thing
        plain = {}
    return Status(plain if isinstance(plain, dict) else {})


def current_trials(
    folder: StudyFolder,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    last: Status | None = None,
) -> pa.Table:
    """The table `trials` as it stands: what a driver that is gone has left running is interrupted.

    `last` is the study's status where it was read already.
    """
    import pyarrow.compute as pc  # it takes a while to load

    if (columns is not None and "state" not in columns) or (last or status(folder)).alive:
        return folder.table("trials", columns, where)
    rows = folder.table("trials", columns, where)
    at = rows.schema.get_field_index("state")
    states = pc.if_else(pc.equal(rows["state"], "running"), "interrupted", rows["state"])
    return rows.set_column(at, rows.schema.field(at), states)


def born(pid: int) -> int | None:
    """When a process of this machine began, so that another with its number is not taken for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _runs(pid: Any, since: int | None) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    now = born(pid)
    return since is None or now is None or now == since


def _number(said: Any) -> float:
    return float(said) if isinstance(said, int | float) else 0.0
