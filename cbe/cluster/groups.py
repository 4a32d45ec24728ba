"""Groups of like nodes: what a cluster file, of whatever kind, offers to trials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cbe.cluster.files import ClusterFile, Document, at
from cbe.spec.faults import KeyPath

MAX_WORKERS = 2  # Ray's own, where a file does not say
GPU_CLASS = re.compile(r"gpu_(\d+)gb")  # a resource that cards of at least so many GB offer


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one kind, which come and go between `min` and `max`."""

    name: str
    place: KeyPath  # in its document
    instance: str | None  # the cloud's name of the machine; None where the file does not say
    spot: bool
    min: int
    max: int
    resources: Mapping[str, float] = field(default_factory=dict)  # of one node, as Ray counts them
    head: bool = False
    disk_gb: int = 0
    priority: int = 0  # of equal groups the autoscaler takes the one that has more
    idle_s: float | None = None  # where it is not that of the cluster


def node_groups(file: ClusterFile) -> list[NodeGroup]:
    """The groups of a cluster."""
    if file.kind == "ray":
        return ray_groups(file.document)
    from cbe.cluster.manifest_groups import manifest_groups  # which needs Ray

    return manifest_groups(file.documents)


def ray_groups(document: Document) -> list[NodeGroup]:
    """The groups of a file of `ray up`; what is of the wrong type there counts as left out."""
    plain = document.plain
    types = at(plain, dict, "available_node_types") or {}
    most = max_workers(document)
    return [
        _group(str(name), each, name == plain.get("head_node_type"), most)
        for name, each in types.items()
        if isinstance(each, dict)
    ]


def max_workers(document: Document) -> int:
    """How many workers a file of `ray up` allows in all."""
    given = at(document.plain, int, "max_workers")
    return MAX_WORKERS if given is None else given


def _group(name: str, plain: dict[str, Any], head: bool, most: int) -> NodeGroup:
    own = at(plain, int, "max_workers")
    return NodeGroup(
        name=name,
        place=("available_node_types", name),
        instance=_instance(plain),
        spot=_is_spot(plain),
        min=at(plain, int, "min_workers") or 0,
        max=own if own is not None else 0 if head else most,
        resources={
            str(key): value
            for key, value in (at(plain, dict, "resources") or {}).items()
            if isinstance(value, (int, float))
        },
        head=head,
        disk_gb=_disk_gb(plain),
        priority=at(plain, int, "priority") or 0,
        idle_s=at(plain, (int, float), "idle_timeout_s"),
    )


def _instance(plain: dict[str, Any]) -> str | None:
    places = (("InstanceType",), ("machineType",), ("azure_arm_parameters", "vmSize"))
    return next(filter(None, (at(plain, str, "node_config", *place) for place in places)), None)


def _is_spot(plain: dict[str, Any]) -> bool:
    config = at(plain, dict, "node_config") or {}
    scheduling = config.get("scheduling")
    parts = scheduling if isinstance(scheduling, list) else [scheduling]  # Ray's examples give a list
    return (
        at(config, str, "InstanceMarketOptions", "MarketType") == "spot"
        or at(config, str, "azure_arm_parameters", "priority") in ("Spot", "Low")
        or any(at(part, str, "provisioningModel") == "SPOT" for part in parts)
        or any(at(part, bool, "preemptible") for part in parts)
    )


def _disk_gb(plain: dict[str, Any]) -> int:
    config = at(plain, dict, "node_config") or {}
    aws = (at(each, int, "Ebs", "VolumeSize") for each in at(config, list, "BlockDeviceMappings") or ())
    gcp = (at(each, int, "initializeParams", "diskSizeGb") for each in at(config, list, "disks") or ())
    azure = at(config, int, "azure_arm_parameters", "osDiskSize")
    return sum(filter(None, (*aws, *gcp, azure)))
