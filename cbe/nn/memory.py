"""What a training step holds in a card's memory, counted on the network itself before anything is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cbe import nn
from cbe.spec import TrainConfig

COPIES = 4  # of every parameter: the weight, its gradient, its momentum, its average
CONTEXT = 600 * 2**20  # what CUDA and its libraries take for themselves
SPARE = 1.3  # of all that is counted: workspaces of convolutions, and what the allocator cannot fill


def memory(config: TrainConfig, *, classes: int, channels: int, size: int) -> int:
    """An upper estimate in bytes, for images of `size` × `size`; in 32 bits, which is the most there is."""
    held: dict[int, Tensor] = {}  # by storage: a tensor that several operations keep is there once

    def keep(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.device("meta"):
        network = nn.build(config, channels, classes).train()
        images = torch.empty(_images(config), channels, size, size)
        hooks: Any = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks:
            out = network(images)
    parameters = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    saved = sum(_size(tensor) for at, tensor in held.items() if at not in parameters)
    own = sum(_size(parameter) for parameter in network.parameters())
    del out
    return int((saved + COPIES * own) * SPARE) + CONTEXT


def _images(config: TrainConfig) -> int:
    """How many pass through the network in one step and are remembered for the way back."""
    training, labeled = config.training, config.training.batch_size * config.loss.labeled_views
    views = 2 if training.forward == "joint" else 1  # apart, the weak ones are forgotten at once
    return labeled + views * training.batch_size * training.unlabeled_ratio


def _size(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()
