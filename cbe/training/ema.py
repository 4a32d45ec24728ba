"""The running mean of the weights: the model that is evaluated, and mean teacher's teacher."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Ema:
    """θ' ← d·θ' + (1−d)·θ in one fused call; BatchNorm's buffers are copied."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._decay = decay
        self._own, self._theirs = _tensors(self.network), _tensors(network)

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self._own[0], self._theirs[0], 1 - self._decay)
        torch._foreach_copy_(self._own[1], self._theirs[1])


def _tensors(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    return list(network.parameters()), list(network.buffers())
