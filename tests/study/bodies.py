"""What trials do in tests that are not about training."""

from __future__ import annotations

from typing import Any

from cbe.ssl.world import World
from cbe.study.assignment import Assignment
from cbe.study.trial import Shared
from cbe.training.launch import Send


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
