"""Networks: a trunk and the ensemble on top of it."""

from torch import nn

from cbe.nn.ensembles import Prediction
from cbe.spec import TrainConfig
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.registry import load

__all__ = ["Prediction", "build"]


def build(config: TrainConfig, channels: int, classes: int) -> nn.Module:
    """The network of a config, initialised from torch's global generator."""
    make = load(ENSEMBLES, config.ensemble.kind)
    network: nn.Module = make(config.model, channels, classes, config.heads, config.private_channels)
    return network
