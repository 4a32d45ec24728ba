"""Which states trials and studies have, whether a study's driver lives, and what that makes of its trials.

A driver writes to `status.json` every few seconds, also which of its trials wait at a rung. One that was
killed leaves its study and its trials `running` there: whoever reads a study asks this module how it stands.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from cbe.processes import born

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from cbe.store.folder import StudyFolder
    from cbe.store.rows import Row

TrialState = Literal["completed", "pruned", "running", "paused", "interrupted", "failed", "infeasible"]
TRIAL_STATES: tuple[TrialState, ...] = get_args(TrialState)  # in the order in which they are listed
OPEN: tuple[TrialState, ...] = ("running", "paused", "interrupted")  # may go on, now or after a resume
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
        """Whether a driver runs: by its process on this machine, by what was heard of it on another.

        The latter is for show, since the clocks of two machines may differ. Who may write, and who may take
        over, does not depend on it: see `cbe.study.control`.
        """
        if self.plain.get("state") != "running":
            return False
        if self.plain.get("host") == socket.gethostname():
            return runs(self.plain.get("pid"), self.plain.get("born"))
        return time.time() - _number(self.plain.get("beat")) < SILENT_S

    @property
    def paused(self) -> frozenset[str]:
        """The trials that wait for the scheduler."""
        said = self.plain.get("paused")
        return frozenset(map(str, said)) if isinstance(said, list) else frozenset()

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


def current(row: Row, *, alive: bool, paused: Collection[str]) -> Row:
    """A trial as it stands: the store has what its driver has paused, or has left behind, as running."""
    if row["state"] != "running":
        return row
    if not alive:
        return {**row, "state": "interrupted"}
    return {**row, "state": "paused"} if row["trial"] in paused else row


def current_trials(
    folder: StudyFolder,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    last: Status | None = None,
) -> pa.Table:
    """The table `trials` as it stands; `last` is the study's status where it was read already.

    The status is read only where a trial may be running.
    """
    import pyarrow as pa  # they take a while to load
    import pyarrow.compute as pc

    from cbe.store.reader import mentioned
    from cbe.store.schema import TABLES

    wanted = list(TABLES["trials"].schema.names if columns is None else columns)
    asked = mentioned(where, TABLES["trials"])
    if "state" not in (*wanted, *asked):
        return folder.table("trials", wanted, where)
    read = list(dict.fromkeys([*wanted, *asked, "trial", "state"]))
    late = where if "state" in asked else None  # it is of the state that is told here
    rows = folder.table("trials", read, where if late is None else None)
    left = pc.equal(rows["state"], "running")
    if pc.any(left).as_py():
        last = last or status(folder)
        if last.alive:
            left = pc.and_(left, pc.is_in(rows["trial"], pa.array(sorted(last.paused), pa.string())))
        at = rows.schema.get_field_index("state")
        states = pc.if_else(left, "paused" if last.alive else "interrupted", rows["state"])
        rows = rows.set_column(at, rows.schema.field(at), states)
    return (rows if late is None else rows.filter(late)).select(wanted)


def runs(pid: Any, since: int | None) -> bool:
    """Whether a process of this machine lives, and is the one that began then."""
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
