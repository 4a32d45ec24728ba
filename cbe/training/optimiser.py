"""SGD with Nesterov momentum, no decay on biases and norms, and lr·cos(7πt/16T)."""

from __future__ import annotations

import math

from torch import nn, optim

from cbe.spec import Training


def make(network: nn.Module, training: Training) -> optim.SGD:
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        # Norms have vectors only; the heads' biases are a matrix, hence the look at the name.
        weighs = parameter.ndim > 1 and not name.endswith("bias")
        (decayed if weighs else plain).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": training.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return optim.SGD(
        groups, lr=training.lr, momentum=training.momentum, nesterov=training.momentum > 0, fused=True
    )


def learning_rate(training: Training, step: int) -> float:
    """The rate of a step counted from 0."""
    return training.lr * math.cos(7 * math.pi * step / (16 * training.steps))


def set_rate(optimiser: optim.SGD, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate
