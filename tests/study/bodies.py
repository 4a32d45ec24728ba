"""What trials do in tests that are not about training."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

from cbe.ssl.world import World
from cbe.store.folder import Store
from cbe.study.assignment import Assignment
from cbe.study.trial.process import Shared, work
from cbe.training.launch import Send
from tests.waiting import until


def bowl(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Reports a curve that is the lower, the nearer λ_lb is to 1 and the more private channels there are."""
    point: dict[str, Any] = {"loss.weights.lb": 3.0, "ensemble.private_channels": 1, **assignment.point}
    training = shared.study.training
    off = abs(float(point["loss.weights.lb"]) - 1) + 1 / float(point["ensemble.private_channels"])
    for step in range(training.evaluation_interval, training.steps + 1, training.evaluation_interval):
        send(
            {"step": step, "validation_error": off + 1 / step, "macs": round(1000 * off), "trial_s": 0.1},
            None,
        )


def fourth_is_worse(
    shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World
) -> None:
    """Trains as ever; the fourth trial tells an error that no other can reach."""

    def tell(metrics: dict[str, Any], checkpoint: str | None) -> None:
        worse = {"validation_error": 2.0} if metrics and assignment.trial == "t0003" else {}
        send({**metrics, **worse}, checkpoint)

    work(shared, assignment, resume, tell, world)


def dies(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Trains as ever; a trial that is new has its last process killed once its first report is recorded.

    One that is started again from nothing is new again, and dies again.
    """
    folder = Store.open(shared.store).study(shared.study.name)

    def tell(metrics: dict[str, Any], checkpoint: str | None) -> None:
        send(metrics, checkpoint)
        if resume is None and world.rank == world.size - 1:
            until(lambda: folder.table("metrics", ["step"]).num_rows, what="the report")
            with (Path(shared.store) / "killed").open("a") as file:
                file.write(f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    work(shared, assignment, resume, tell, world)


def paper_dies_and_fourth_is_worse(
    shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World
) -> None:
    (dies if assignment.preset == "paper" else fourth_is_worse)(shared, assignment, resume, send, world)


def starved(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Trains with half a gigabyte to spare."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, limits[1]))
    try:
        work(shared, assignment, resume, send, world)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def refuses(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Fails whatever is to be trained."""
    raise RuntimeError(f"{assignment.trial} was started")
