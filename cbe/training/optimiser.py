"""SGD with Nesterov momentum, no decay on biases and norms, and lr·cos(7πt/16T)."""

from __future__ import annotations

import math
from inspect import unwrap

import torch
from torch import nn, optim

from cbe.spec import Training


class Sgd(optim.SGD):
    """torch's own, bare of decorators that load its compiler: that takes over a second, and is never used."""

    add_param_group = unwrap(optim.SGD.add_param_group)
    zero_grad = unwrap(optim.SGD.zero_grad)
    state_dict = unwrap(optim.SGD.state_dict)
    load_state_dict = unwrap(optim.SGD.load_state_dict)
    step = torch.no_grad()(unwrap(optim.SGD.step))


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
    return Sgd(groups, lr=training.lr, momentum=training.momentum, nesterov=training.momentum > 0, fused=True)


def learning_rate(training: Training, step: int) -> float:
    """The rate of a step counted from 0."""
    return training.lr * math.cos(7 * math.pi * step / (16 * training.steps))


def set_rate(optimiser: optim.SGD, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate
