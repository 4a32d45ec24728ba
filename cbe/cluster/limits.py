"""What a cluster may grow to, by the file it was made from: Ray itself does not tell a driver.

`CBE_CLUSTER` on the head names the file, in whose environment the drivers of studies run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cbe.cluster.files import ClusterFile, at, read_one
from cbe.cluster.groups import NodeGroup, max_workers, node_groups

VARIABLE = "CBE_CLUSTER"
IDLE_S = 300.0  # Ray's own, where the file does not say
IDLE_ON_KUBERNETES_S = 60.0


@dataclass(frozen=True)
class ClusterLimits:
    """Groups of workers, how many machines there can be of all together, and how long one stays unused."""

    groups: tuple[NodeGroup, ...]
    most: int
    idle_s: float


def cluster_limits() -> ClusterLimits | None:
    """Of the cluster whose head this is; None where nobody has said."""
    path = os.environ.get(VARIABLE)
    return read_limits(Path(path).expanduser()) if path else None


def read_limits(path: Path) -> ClusterLimits:
    file = read_one(path)
    workers = tuple(group for group in node_groups(file) if not group.head and group.max)
    return ClusterLimits(workers, most_workers(file, workers), _idle_s(file))


def most_workers(file: ClusterFile, workers: Iterable[NodeGroup]) -> int:
    """How many workers there can be at once."""
    most = sum(group.max for group in workers)
    return most if file.kind == "kubernetes" else min(most, max_workers(file.document))


def _idle_s(file: ClusterFile) -> float:
    if file.kind == "ray":
        minutes = at(file.document.plain, (int, float), "idle_timeout_minutes")
        return IDLE_S if minutes is None else float(minutes) * 60
    from cbe.cluster.manifest_groups import cluster_specs

    options = ("autoscalerOptions", "idleTimeoutSeconds")
    found = (spec.at(int, *options) for spec in cluster_specs(file.documents))
    return float(next((seconds for seconds in found if seconds is not None), IDLE_ON_KUBERNETES_S))
