"""A cluster's machines as they come and go while a study runs: watched, recorded and paid for.

Also who tells trials that their machine is about to go: a cloud that takes it back says so some time before,
and Ray then drains it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray
from ray._private.state import state
from ray.autoscaler.v2.sdk import get_cluster_status

from cbe.study.ledger import Ledger
from cbe.study.periodic import every
from cbe.study.scaling.cluster import HEAD, Capacity
from cbe.study.trial.stop_signal import StopSignal

LOOK_S = 1.0
AT_LEAST_S = 60.0  # between rows where nothing changes
SETTLE_S = 15.0  # after which the autoscaler knows of a machine that has come


@dataclass(frozen=True)
class Node:
    """A machine beside the head, as it was last seen."""

    group: str
    places: float  # for trials of this study
    used: float  # of them, by whomever
    idle_s: float


@dataclass(frozen=True)
class Sight:
    """The cluster at one time."""

    nodes: dict[str, Node] = field(default_factory=dict)
    starting: tuple[str, ...] = ()  # the group of each machine that was asked for and is not here yet
    asked: tuple[tuple[str, float], ...] = ()  # the same by the autoscaler, and since when; 0: unknown
    draining: frozenset[str] = frozenset()


class Scaling:
    """Looks at the cluster every second; what it sees is in the study's table `scaling` and its events."""

    def __init__(self, ledger: Ledger, capacity: Capacity, stop_signal: StopSignal) -> None:
        self._ledger, self._capacity, self._stop_signal = ledger, capacity, stop_signal
        machines = capacity.size.machines
        self._groups = {each.group: capacity.places(each.resources) for each in machines if each.group}
        self._sight, self._looked = Sight(), time.monotonic()
        self._wanted_since: float | None = None
        self._arrived: dict[str, float] = {}  # by node, since 1970
        self._slowest_s = 0.0  # from a demand to its machine
        self._idle_s = _recorded(ledger)
        self._blind: str | None = None  # why the cluster could not be seen
        self._noted: tuple[Any, ...] = ()
        self._noted_s, self._noted_at = self._idle_s, -AT_LEAST_S

    @property
    def idle_s(self) -> float:
        return self._idle_s

    @property
    def tail_s(self) -> float:
        """Machines that nobody uses are kept for a while before they go."""
        return self._capacity.size.idle_s * sum(node.places for node in self._grown(self._sight))

    @property
    def start_s(self) -> float:
        free = sum(node.places - node.used for node in self._sight.nodes.values())
        return self._slowest_s if free < 1 else 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Looks until the block ends; the study does not depend on it."""
        try:
            self._sight = self._without_arrivals(see(self._capacity))  # what is there came for somebody else
        except Exception as error:
            self._failed(error)
        self._looked = time.monotonic()
        self._note()
        try:
            with every(LOOK_S, self.look, "scaling", self._failed):
                yield
        finally:
            self._idle_s += self.tail_s  # they are paid until they go, and nobody will look
            self._note(last=True)

    def _failed(self, error: Exception) -> None:
        """Told once: while nobody sees the cluster nothing idle is counted, and no trial is told to leave."""
        if self._blind is None:
            self._blind = f"{type(error).__name__}: {error}"
            self._ledger.recorder.event("cluster unseen", reason=self._blind)

    def look(self) -> None:
        now, sight = time.monotonic(), self._without_arrivals(see(self._capacity))
        self._idle_s += (now - self._looked) * self._idle_places(sight)
        sight = replace(sight, nodes={name: self._aged(name, sight, now) for name in sight.nodes})
        if leaving := sight.draining - self._sight.draining:
            self._stop_signal.leave(leaving)
        for name in sight.nodes.keys() - self._sight.nodes.keys():
            self._came(name, sight.nodes[name], now)
        for name in self._sight.nodes.keys() - sight.nodes.keys():
            self._went(name, self._sight.nodes[name])
        if not self._ledger.waiting:
            self._wanted_since = None
        elif self._wanted_since is None:
            self._wanted_since = now
        self._sight, self._looked = sight, now
        self._note()

    def _aged(self, name: str, sight: Sight, now: float) -> Node:
        """A machine as it is; of one that drains Ray no longer says for how long nobody has used it."""
        node, before = sight.nodes[name], self._sight.nodes.get(name)
        if before is None or name not in sight.draining or node.used or before.used:
            return node
        return replace(node, idle_s=before.idle_s + now - self._looked)

    def _without_arrivals(self, sight: Sight) -> Sight:
        """The autoscaler hears from its cloud late: what came since it asked is no longer on its way."""
        now, left = time.time(), list[str]()
        self._arrived = {name: self._arrived.get(name, now) for name in sight.nodes}
        for group, times in groupby(sorted(sight.asked), key=lambda asked: asked[0]):
            asked_at = [at or now - SETTLE_S for _, at in times]
            here = [self._arrived[name] for name, node in sight.nodes.items() if node.group == group]
            came = sum(at >= min(asked_at) for at in here)
            left += [group] * max(0, len(asked_at) - came)
        return replace(sight, starting=tuple(left))

    def _idle_places(self, sight: Sight) -> float:
        coming = sum(self._groups.get(group, 0.0) for group in sight.starting)
        return coming + sum(max(0.0, node.places - node.used) for node in self._grown(sight))

    def _grown(self, sight: Sight) -> list[Node]:
        """Machines that are there for studies alone; others would cost the same without."""
        return [node for node in sight.nodes.values() if node.group in self._groups]

    def _came(self, name: str, node: Node, now: float) -> None:
        after_s = None if self._wanted_since is None else now - self._wanted_since
        self._slowest_s = max(self._slowest_s, after_s or 0.0)
        self._ledger.recorder.event("node came", node=name, group=node.group, after_s=after_s)

    def _went(self, name: str, node: Node) -> None:
        released = node.idle_s if not node.used else None
        self._ledger.recorder.event("node went", node=name, group=node.group, idle_s=released)

    def _note(self, last: bool = False) -> None:
        """A row where something changed, or now and then."""
        ledger, sight, now = self._ledger, self._sight, time.monotonic()
        groups = Counter(node.group for node in sight.nodes.values())
        found = (ledger.busy, ledger.waiting, len(sight.starting), tuple(sorted(groups.items())))
        if found == self._noted and now - self._noted_at < AT_LEAST_S and not last:
            return
        running, pending, starting, _ = found
        ledger.recorder.scaling(
            running=running,
            pending=pending,
            starting=starting,
            nodes=len(sight.nodes),
            groups=json.dumps(groups, sort_keys=True),
            idle_s=self._idle_s - self._noted_s,
        )
        self._noted, self._noted_at, self._noted_s = found, now, self._idle_s


def see(capacity: Capacity) -> Sight:
    """Asks Ray."""
    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    nodes = {}
    for node in (*status.active_nodes, *status.idle_nodes):
        total = node.total_resources()
        if HEAD not in total and node.node_id:
            nodes[node.node_id] = _node(node, total, capacity)
    launches = [each for each in status.pending_launches for _ in range(each.count)]
    asked = [(each.ray_node_type_name, float(each.request_ts_s)) for each in launches]
    asked += [(each.ray_node_type_name, 0.0) for each in status.pending_nodes]
    return Sight(nodes, asked=tuple(asked), draining=frozenset(state.get_draining_nodes()))


def _node(node: Any, total: dict[str, float], capacity: Capacity) -> Node:
    scarce, each = ("GPU", capacity.gpus) if capacity.gpus else ("CPU", capacity.cpus)
    used = node.used_resources().get(scarce, 0.0) / (each * capacity.workers)
    return Node(
        node.ray_node_type_name or "", capacity.places(total), used, node.resource_usage.idle_time_ms / 1000
    )


def _recorded(ledger: Ledger) -> float:
    """What earlier starts of the study have left unused."""
    table = ledger.recorder.folder.table("scaling", ["idle_s"])
    return float(sum(each or 0.0 for each in table["idle_s"].to_pylist()))
