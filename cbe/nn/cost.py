"""Parameters and multiply-accumulates of a network, counted on the network itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from cbe import nn
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
    with torch.device("meta"):
        network = nn.build(config, channels, classes).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.empty(1, channels, size, size))
    return Cost(
        config.model.name,
        config.ensemble.kind,
        config.heads,
        config.private_channels,
        sum(parameter.numel() for parameter in network.parameters()),
        counter.get_total_flops() // 2,
        memory(config, classes=classes, channels=channels, size=size) if with_memory else None,
    )
