"""How a cluster grew and shrank for a study: its machines, how soon they came and when they went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import pyarrow.compute as pc

from cbe.store.folder import StudyFolder
from cbe.store.rows import Row
from cbe.words import duration, plural

_COLUMNS = ("time", "running", "pending", "starting", "nodes", "groups", "idle_s")


@dataclass(frozen=True)
class MachineHistory:
    rows: Sequence[Row]  # of the table `scaling`, in order of time
    came_s: tuple[float, ...]  # of each machine: from the wish for one to its coming
    kept_s: tuple[float, ...]  # of each machine that was let go: how long nobody had used it
    lost: int  # machines that went while trials were on them

    @property
    def most(self) -> int:
        return max((row["nodes"] for row in self.rows), default=0)

    @property
    def idle_s(self) -> float:
        """Of places for trials that cost and were not used, as their machines started or waited."""
        return sum(row["idle_s"] or 0.0 for row in self.rows)

    def sentence(self) -> str:
        parts = [f"{plural(self.most, 'machine')} at most"]
        if self.came_s:
            parts.append(f"came {_spread(self.came_s)} after one was wanted")
        if self.kept_s:
            parts.append(f"went {_spread(self.kept_s)} after their last trial")
        if self.lost:
            parts.append(f"{self.lost} lost with trials on them")
        return "; ".join([*parts, f"{duration(self.idle_s)} of places unused"])

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def machines(folder: StudyFolder) -> MachineHistory | None:
    """None for a study that ran on one machine."""
    rows = folder.table("scaling", _COLUMNS).sort_by("time").to_pylist()
    if not rows:
        return None
    events = folder.table("events", ("kind", "details"), pc.field("kind").isin(["node came", "node went"]))
    happened = [(row["kind"], json.loads(row["details"])) for row in events.to_pylist()]
    came = [details["after_s"] for kind, details in happened if kind == "node came"]
    went = [details["idle_s"] for kind, details in happened if kind == "node went"]
    return MachineHistory(rows, _known(came), _known(went), went.count(None))


def _known(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f} s"
    return f"{median(values):.1f} s (median of {len(values)}, {min(values):.1f} to {max(values):.1f})"
