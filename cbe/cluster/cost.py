"""What a cluster costs an hour: while it waits, and at its full size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from cbe.cluster.files import ClusterFile, at, read_one
from cbe.cluster.groups import NodeGroup, node_groups
from cbe.cluster.limits import most_workers
from cbe.cluster.prices import price_list
from cbe.cluster.rules import is_local
from cbe.errors import InputError


@dataclass(frozen=True)
class GroupCost:
    group: NodeGroup
    node_usd_h: float

    def to_plain(self) -> dict[str, Any]:
        group = self.group
        return {
            "name": group.name,
            "instance": group.instance,
            "spot": group.spot,
            "min": group.min,
            "max": group.max,
            "node_usd_h": round(self.node_usd_h, 4),
        }


@dataclass(frozen=True)
class Bill:
    """USD an hour by the price list of a date and a region; disks and addresses included, traffic not."""

    file: Path
    as_of: date
    region: str
    file_region: str | None  # where the cluster would be
    head: GroupCost | None
    workers: tuple[GroupCost, ...]
    max_workers: int

    @property
    def elsewhere(self) -> bool:
        """Whether the prices are of another region than the cluster."""
        return self.file_region is not None and self.file_region not in self.region.split()

    @property
    def idle_usd_h(self) -> float:
        """With no trial: the head, and workers that are kept."""
        return self._head_usd_h + sum(each.node_usd_h * each.group.min for each in self.workers)

    @property
    def full_spot_usd_h(self) -> float:
        """With as many spot workers as may be; of a cluster without any, with all workers."""
        spot = [each for each in self.workers if each.group.spot]
        return self._full(sorted(spot or self.workers, key=lambda each: -each.node_usd_h))

    @property
    def full_usd_h(self) -> float:
        """The most it can cost: as many of the dearest workers as may be."""
        return self._full(sorted(self.workers, key=lambda each: -each.node_usd_h))

    @property
    def _head_usd_h(self) -> float:
        return self.head.node_usd_h if self.head else 0.0

    def _full(self, order: Sequence[GroupCost]) -> float:
        left, total = self.max_workers, self._head_usd_h
        for each in order:
            nodes = min(left, each.group.max)
            total += nodes * each.node_usd_h
            left -= nodes
        return total

    def to_plain(self, hours: float = 1) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "prices_as_of": self.as_of.isoformat(),
            "region": self.region,
            "file_region": self.file_region,
            "head": self.head.to_plain() if self.head else None,
            "groups": [each.to_plain() for each in self.workers],
            "max_workers": self.max_workers,
            "hours": hours,
            "idle_usd": round(self.idle_usd_h * hours, 4),
            "full_spot_usd": round(self.full_spot_usd_h * hours, 4),
            "full_usd": round(self.full_usd_h * hours, 4),
        }


def cost(path: Path) -> Bill:
    """What the cluster of a file or a folder costs."""
    file = read_one(path)
    groups = node_groups(file)
    if not groups and not is_local(file.documents[0]):
        raise InputError(f"{file.path}: describes no machines; give a file as cluster/aws.yaml")
    prices = price_list()
    regions: dict[str, None] = {}
    priced: list[GroupCost] = []
    for group in groups:
        if group.instance is None:  # a machine that is there anyway
            priced.append(GroupCost(group, 0.0))
            continue
        price = prices.find(group.instance, f"{file.path} {group.name}")
        regions[f"{price.cloud} {price.region}"] = None
        priced.append(GroupCost(group, price.hour(spot=group.spot, disk_gb=group.disk_gb)))
    heads = [each for each in priced if each.group.head]
    return Bill(
        file=file.path,
        as_of=prices.as_of,
        region=", ".join(regions),
        file_region=_region(file) if regions else None,
        head=heads[0] if heads else None,
        workers=tuple(each for each in priced if not each.group.head),
        max_workers=most_workers(file, (each for each in groups if not each.head)),
    )


def _region(file: ClusterFile) -> str | None:
    provider = at(file.documents[0].plain, dict, "provider") or {}
    return at(provider, str, "region") or at(provider, str, "location")
