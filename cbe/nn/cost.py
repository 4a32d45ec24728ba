"""Parameters and multiply-accumulates of a network, counted on the network itself.

Counted are convolutions and linear layers, as in the paper; not the products between tokens in attention.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from cbe import nn
from cbe.nn import backbones
from cbe.nn.ensembles import Heads
from cbe.nn.memory import memory
from cbe.spec import TrainConfig


@dataclass(frozen=True)
class Cost:
    model: str
    ensemble: str
    heads: int
    private_channels: int
    parameters: int
    macs: int  # of one image, in convolutions and linear layers
    card_bytes: int | None = None  # that training takes at most, where it was asked for

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def cost(config: TrainConfig, *, classes: int, channels: int, size: int, with_memory: bool = False) -> Cost:
    """Counts a config's network for images of `size` × `size`; no memory is spent on it.

    >>> cost(TrainConfig.model_validate({"ensemble": "single"}), classes=10, channels=3, size=32).parameters
    1467610
    """
    backbones.require_fit(config.model, channels, size, size)
    with torch.device("meta"):
        network = nn.build(config, channels, classes).eval()
    macs = 0

    def count(layer: torch.nn.Module, _: Any, out: Tensor) -> None:
        nonlocal macs
        places = 1
        if isinstance(layer, torch.nn.Conv2d):
            places = out.shape[2] * out.shape[3]
        elif isinstance(layer, torch.nn.Linear):
            places = math.prod(out.shape[1:-1])  # tokens
        macs += places * sum(each.numel() for name, each in layer.named_parameters() if name == "weight")

    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear | Heads):
            layer.register_forward_hook(count)
    # A batch of none has the shapes of all. To multiply on meta would load torch's compiler, which takes
    # seconds; memory that nobody writes to is not taken either.
    state = {name: torch.empty(each.shape) for name, each in network.state_dict(keep_vars=True).items()}
    with torch.no_grad():
        functional_call(network, state, torch.empty(0, channels, size, size))
    return Cost(
        config.model.name,
        config.ensemble.kind,
        config.heads,
        config.private_channels,
        sum(parameter.numel() for parameter in network.parameters()),
        macs,
        memory(config, classes=classes, channels=channels, size=size) if with_memory else None,
    )
