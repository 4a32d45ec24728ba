"""The Ray cluster a study runs on: an embedded one by default, or the one at an address."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray

from cbe.cluster.groups import GPU_CLASS
from cbe.cluster.limits import VARIABLE, cluster_limits
from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.store.folder import Store
from cbe.study.budget.plan import whole

HEAD = "node:__internal_head__"


@dataclass(frozen=True)
class MachineGroup:
    """Some of one kind: what each offers, and how many there can be."""

    resources: Mapping[str, float]
    most: int = 1
    group: str | None = None  # of the autoscaler, where it is the one who starts them


@dataclass(frozen=True)
class Size:
    """A cluster at its largest."""

    machines: tuple[MachineGroup, ...]
    most: int  # of them that there can be at once
    idle_s: float = 0.0  # that a machine stays which nobody uses


@dataclass(frozen=True)
class Capacity:
    """What a study may use at once, and what of it one trial takes."""

    workers: int
    cpus: float  # a worker's
    gpus: float
    concurrent: int  # trials
    size: Size

    @property
    def alone(self) -> bool:
        """On one machine, and no other comes."""
        return self.size.most == 1 and all(self.places(each.resources) for each in self.size.machines)

    @property
    def cards(self) -> list[int]:
        """The sizes of cards that can be asked for, in GB, the smallest first."""
        names = {name for each in self.size.machines for name in each.resources} if self.gpus else set()
        return sorted(int(size[1]) for name in names if (size := GPU_CLASS.fullmatch(name)))

    @property
    def fits(self) -> int:
        """Trials that the cluster holds at its largest."""
        every = [self.places(each.resources) for each in self.size.machines for _ in range(each.most)]
        return math.floor(sum(sorted(every, reverse=True)[: self.size.most]) + 1e-9)

    def places(self, resources: Mapping[str, float]) -> float:
        """How many trials a machine holds; a trial of several workers has part of its place there."""
        fits = whole(resources.get("CPU", 0), self.cpus)
        if self.gpus:
            fits = min(fits, whole(resources.get("GPU", 0), self.gpus))
        return fits / self.workers


@contextmanager
def connected(study: StudyConfig, address: str | None) -> Iterator[bool]:
    """A connection to Ray for the time of a study: whether that is embedded in this process.

    A cluster that this process is connected to already stays so; another one is then refused.
    """
    if ray.is_initialized():
        _require_this(address)
        yield False
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _knock(address)
    try:
        if address == "local":
            # Workers of one trial find each other through the dashboard's state; one alone needs none.
            ray.init(
                "local",
                include_dashboard=study.resources.workers > 1,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        else:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise _nobody(address, error) from None
    except KeyboardInterrupt:  # ends what has started of it
        ray.shutdown()
        raise
    try:
        yield address == "local"
    finally:
        ray.shutdown()


def _require_this(address: str | None) -> None:
    here = ray.get_runtime_context().gcs_address
    if address in (None, "auto", "local", here):
        return
    _knock(address)
    raise InputError(
        f"address {address}: this process is connected to the Ray at {here}; leave the address out, "
        "or call ray.shutdown() first"
    )


def _knock(address: str) -> None:
    """Fails at once where nobody answers, which takes Ray itself minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise _nobody(address, error) from None


def _nobody(address: str, error: Exception) -> InputError:
    reason = str(error).splitlines()[0]
    return InputError(
        f"no Ray cluster at {address} ({reason}); start one with `ray start --head`, or leave the address out"
    )


def size(embedded: bool = False) -> Size:
    """What the cluster can have: by the file it was made from, or else what is there."""
    here = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    limits = None if embedded else cluster_limits()
    if limits is None:
        return Size(tuple(map(MachineGroup, here)), len(here))
    head = [MachineGroup(each) for each in here if HEAD in each]
    groups = [MachineGroup(group.resources, group.max, group.name) for group in limits.groups]
    return Size((*head, *groups), len(head) + limits.most, limits.idle_s)


def capacity(study: StudyConfig, size: Size) -> Capacity:
    """What a study may use of a cluster; one that never fits is refused."""
    wanted = study.resources
    cards = sum(each.resources.get("GPU", 0) * each.most for each in size.machines)
    gpus = wanted.gpus if wanted.gpus is not None else float(cards > 0)
    capacity = Capacity(wanted.workers, wanted.cpus, gpus, wanted.concurrent or 1, size)
    if capacity.fits < 1 and wanted.concurrent is None:
        cores = sum(each.resources.get("CPU", 0) * each.most for each in size.machines)
        raise InputError(
            f"resources: a trial wants {wanted.workers} × ({wanted.cpus:g} CPU, {gpus:g} GPU), the cluster "
            f"has {cores:g} CPU and {cards:g} GPU at most; ask for less, or, for a cluster that grows, set "
            f"{VARIABLE} on its head to its file, or give resources.concurrent"
        )
    return replace(capacity, concurrent=wanted.concurrent or capacity.fits)


def resources(capacity: Capacity, card: Mapping[str, float]) -> dict[str, float]:
    """What Tune sets aside for a trial's own process, on the kind of card given."""
    if capacity.workers > 1:
        # Workers have a placement group of their own: a core for the trial beside it can deadlock the two.
        return {HEAD: 0.001}
    return {"CPU": capacity.cpus, **({"GPU": capacity.gpus} if capacity.gpus else {}), **card}


def card(capacity: Capacity, needs: int) -> dict[str, float]:
    """The smallest kind of card that holds what a trial needs, where the cluster tells its cards apart.

    Larger ones offer the smaller kinds too, so that a trial that asks for little can run on any. One that
    fits nowhere asks for the largest: the estimate is an upper one, and running out of memory is recorded.
    """
    if not capacity.cards:
        return {}
    share = min(capacity.gpus, 1.0)
    holds = [size for size in capacity.cards if size * share * 2**30 >= needs]
    return {f"gpu_{(holds or capacity.cards[-1:])[0]}gb": capacity.gpus}


def require_shared(study: StudyConfig, store: Store, capacity: Capacity) -> None:
    """Refuses a store that only the driver's machine can see, where trials run on others."""
    if capacity.alone or study.storage.shared or not store.location.local:
        return
    raise InputError(
        f"storage.store: {store.uri} is a folder of one machine, and this cluster has several or grows; "
        "wanted a bucket, as s3://bucket/prefix, gs://… or abfs://…; "
        "where all machines see this very folder, as over NFS, say storage.shared: true"
    )
