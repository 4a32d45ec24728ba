"""The running mean of the weights: the model that is evaluated, and mean teacher's teacher."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Ema:
    """θ' ← d·θ' + (1−d)·θ in one fused call.

    With `warmup`, d is at most (1+t)/(10+t) at step t, and BatchNorm's running statistics are averaged as the
    weights are: the mean forgets the initial weights at once, and its statistics belong to its weights.
    Without, d is the same at every step, and the network's statistics are copied.
    """

    def __init__(self, network: nn.Module, decay: float, warmup: bool) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._decay, self._warmup = decay, warmup
        self._averaged, self._copied = _tensors(self.network, warmup)
        self._their_averaged, self._their_copied = _tensors(network, warmup)

    @torch.no_grad()
    def update(self, step: int) -> None:
        torch._foreach_lerp_(self._averaged, self._their_averaged, 1 - self.decay(step))
        torch._foreach_copy_(self._copied, self._their_copied)

    def decay(self, step: int) -> float:
        """d at a step, counted from 0."""
        return min(self._decay, (1 + step) / (10 + step)) if self._warmup else self._decay


def _tensors(network: nn.Module, warmup: bool) -> tuple[list[Tensor], list[Tensor]]:
    """What is averaged and what is copied; a count of batches is never averaged."""
    buffers = list(network.buffers())
    averaged = [buffer for buffer in buffers if warmup and buffer.is_floating_point()]
    copied = [buffer for buffer in buffers if not (warmup and buffer.is_floating_point())]
    return [*network.parameters(), *averaged], copied
