"""What a cluster may grow to, by the file it was made from: Ray itself does not tell a driver.

`CBE_CLUSTER` on the head names the file, in whose environment the drivers of studies run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cbe.cluster.check import groups
from cbe.cluster.files import ClusterFile, at, read_one
from cbe.cluster.groups import Group

VARIABLE = "CBE_CLUSTER"
IDLE_S = 300.0  # Ray's own, where the file does not say
IDLE_ON_KUBERNETES_S = 60.0


@dataclass(frozen=True)
class Growth:
    """Groups of workers, how many machines there can be of all together, and how long one stays unused."""

    groups: tuple[Group, ...]
    most: int
    idle_s: float


def growth() -> Growth | None:
    """Of the cluster whose head this is; None where nobody has said."""
    path = os.environ.get(VARIABLE)
    return growth_of(Path(path).expanduser()) if path else None


def growth_of(path: Path) -> Growth:
    file = read_one(path)
    workers = tuple(group for group in groups(file) if not group.head and group.max)
    most = sum(group.max for group in workers)
    if file.kind == "ray":
        plain = file.document.plain
        limit, minutes = at(plain, int, "max_workers"), at(plain, (int, float), "idle_timeout_minutes")
        most = most if limit is None else min(most, limit)
        return Growth(workers, most, IDLE_S if minutes is None else float(minutes) * 60)
    return Growth(workers, most, _idle_on_kubernetes(file))


def _idle_on_kubernetes(file: ClusterFile) -> float:
    places = (("spec",), ("spec", "rayClusterSpec"))
    options = ("autoscalerOptions", "idleTimeoutSeconds")
    found = (at(each.plain, int, *place, *options) for each in file.documents for place in places)
    return float(next((seconds for seconds in found if seconds is not None), IDLE_ON_KUBERNETES_S))
