"""The Ray cluster a study runs on: an embedded one by default, or the one at an address."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.study.plan import whole


@dataclass(frozen=True)
class Room:
    """What a study may use at once."""

    gpus: float  # per worker
    concurrent: int  # trials


@contextmanager
def connected(study: StudyConfig, address: str | None) -> Iterator[None]:
    """A connection to Ray for the time of a study; a cluster that is connected already stays so."""
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        _knock(address)
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
        reason = str(error).splitlines()[0]
        raise InputError(
            f"no Ray cluster at {address} ({reason}); start one with `ray start --head`, "
            "or leave the address out"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Fails at once where nobody answers, which takes Ray itself minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def resources(study: StudyConfig, room: Room) -> dict[str, float]:
    """What Tune sets aside for a trial's own process."""
    wanted = study.resources
    if wanted.workers > 1:
        # Workers have a placement group of their own: a core for the trial beside it can deadlock the two.
        return {"node:__internal_head__": 0.001}
    return {"CPU": wanted.cpus, **({"GPU": room.gpus} if room.gpus else {})}


def room(study: StudyConfig) -> Room:
    """How many trials the cluster holds at once; a study that never fits is refused."""
    wanted, have = study.resources, ray.cluster_resources()
    gpus = wanted.gpus if wanted.gpus is not None else float(have.get("GPU", 0) > 0)
    fits = whole(have.get("CPU", 0), wanted.workers * wanted.cpus)
    if gpus:
        fits = min(fits, whole(have.get("GPU", 0), wanted.workers * gpus))
    if fits < 1 and wanted.concurrent is None:
        raise InputError(
            f"resources: a trial wants {wanted.workers} × ({wanted.cpus:g} CPU, {gpus:g} GPU), the cluster "
            f"has {have.get('CPU', 0):g} CPU and {have.get('GPU', 0):g} GPU; ask for less, or give "
            "`concurrent` for a cluster that grows"
        )
    return Room(gpus, wanted.concurrent or fits)  # a cluster that grows is asked for more than it has
