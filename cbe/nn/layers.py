"""Layers that backbones and ensembles share."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from cbe.spec import Network

Norm = Callable[[int], nn.Module]


def batch_norm(config: Network) -> Norm:
    """BatchNorm as the config wants it, still to be given its number of channels."""
    return lambda channels: nn.BatchNorm2d(channels, eps=config.bn_epsilon, momentum=config.bn_momentum)


def initialise(module: nn.Module, leak: float) -> None:
    """He's initialisation for convolutions, by fan-out; norms keep 1 and 0. On meta nothing is drawn."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d) and not part.weight.is_meta:
            nn.init.kaiming_normal_(part.weight, a=leak, mode="fan_out", nonlinearity="leaky_relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
