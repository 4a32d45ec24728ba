"""Threshold policies: how much each head's prediction of an unlabeled image counts.

A policy is a module whose buffers are its state: they go into checkpoints with it. It is called once a step
with `probs` [N, M, K] of this worker's images, and with `seen` [N', M, K] and `indices` [N'] of all workers'
for its running means, so that all workers hold the same state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cbe.spec import MethodSettings


@dataclass(frozen=True)
class Shape:
    """What a policy is made for."""

    heads: int
    classes: int
    images: int  # unlabeled images in the set, for policies that remember each
    settings: MethodSettings  # of the method, without null where it takes them


class Policy(nn.Module, ABC):
    @abstractmethod
    def forward(self, probs: Tensor, seen: Tensor, indices: Tensor) -> Tensor:
        """Weight [N, M] in 0..1 of each head's prediction."""

    @abstractmethod
    def per_class(self) -> Tensor:
        """The threshold in force for each head and class, [M, K]."""


MakePolicy = Callable[[Shape], Policy]


class Always(Policy):
    """No threshold: every prediction counts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.zeros(shape.heads, shape.classes))

    threshold: Tensor

    def forward(self, probs: Tensor, seen: Tensor, indices: Tensor) -> Tensor:
        return torch.ones_like(probs[:, :, 0])

    def per_class(self) -> Tensor:
        return self.threshold


class Fixed(Policy):
    """One τ for all classes, heads and steps."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer(
            "threshold", torch.full((shape.heads, shape.classes), shape.settings.threshold or 0.0)
        )

    threshold: Tensor

    def forward(self, probs: Tensor, seen: Tensor, indices: Tensor) -> Tensor:
        return (probs.amax(dim=2) >= self.threshold[:, 0]).float()

    def per_class(self) -> Tensor:
        return self.threshold
