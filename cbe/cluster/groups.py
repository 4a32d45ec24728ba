"""Groups of like nodes: what a cluster file, of whatever kind, offers to trials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cbe.cluster.files import Document, at

GPU_CLASS = re.compile(r"gpu_(\d+)gb")  # a resource that cards of at least so many GB offer


@dataclass(frozen=True)
class Group:
    """Nodes of one kind, which come and go between `min` and `max`."""

    name: str
    instance: str | None  # the cloud's name of the machine; None where the file does not say
    spot: bool
    min: int
    max: int
    resources: Mapping[str, float] = field(default_factory=dict)  # of one node, as Ray counts them
    head: bool = False
    disk_gb: int = 0
    priority: int = 0  # of equal groups the autoscaler takes the one that has more

    @property
    def gpus(self) -> float:
        return self.resources.get("GPU", 0)

    @property
    def classes(self) -> dict[int, float]:
        """The GB of each class of card it offers, and how many cards of it."""
        found = {GPU_CLASS.fullmatch(name): count for name, count in self.resources.items()}
        return {int(match[1]): count for match, count in found.items() if match}


def gpu_classes(groups: Iterable[Group]) -> list[int]:
    """The classes of cards that a cluster knows, in GB, smallest first."""
    return sorted({size for group in groups for size in group.classes})


def ray_groups(document: Document) -> list[Group]:
    """The groups of a file of `ray up`; what is of the wrong type there counts as left out."""
    plain = document.plain
    types = at(plain, dict, "available_node_types") or {}
    most = at(plain, int, "max_workers") or 0
    return [
        _group(str(name), each, name == plain.get("head_node_type"), most)
        for name, each in types.items()
        if isinstance(each, dict)
    ]


def _group(name: str, plain: dict[str, Any], head: bool, most: int) -> Group:
    max_workers = at(plain, int, "max_workers")
    return Group(
        name=name,
        instance=_instance(plain),
        spot=_is_spot(plain),
        min=at(plain, int, "min_workers") or 0,
        max=max_workers if max_workers is not None else 0 if head else most,
        resources={
            key: value
            for key, value in (at(plain, dict, "resources") or {}).items()
            if isinstance(value, (int, float))
        },
        head=head,
        disk_gb=_disk_gb(plain),
        priority=at(plain, int, "priority") or 0,
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
