"""FlexMatch (Zhang et al. 2021): FixMatch with a threshold for each class that follows its progress."""

from __future__ import annotations

import torch
from torch import Tensor

from cbe.ssl.method import Method
from cbe.ssl.thresholds import Policy, Shape


class Curriculum(Policy):
    """τ_c = τ·β_c/(2−β_c), β_c a class's share of confident images, counted before this step."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.classes = shape.classes
        self.limit = shape.settings.threshold or 0.0
        # The class each image was last confidently given by each head; K stands for never.
        self.register_buffer("chosen", torch.full((shape.images, shape.heads), shape.classes))

    chosen: Tensor  # [images, M]

    def per_class(self) -> Tensor:
        counts = torch.zeros(self.chosen.shape[1], self.classes + 1, device=self.chosen.device)
        counts.scatter_add_(1, self.chosen.T, torch.ones_like(self.chosen.T, dtype=counts.dtype))
        # Warm-up: the never-chosen count as a class of their own, so that β starts near 0 and not at 1.
        beta = counts[:, : self.classes] / counts.amax(dim=1, keepdim=True)
        return self.limit * beta / (2 - beta)

    def forward(self, probs: Tensor, seen: Tensor, indices: Tensor) -> Tensor:
        confidence, label = probs.max(dim=2)
        passes = confidence >= self.per_class().gather(1, label.T).T
        self._remember(seen, indices)
        return passes.float()

    def _remember(self, seen: Tensor, indices: Tensor) -> None:
        confidence, label = seen.max(dim=2)
        label = torch.where(confidence >= self.limit, label, -1)
        # An image may stand twice in a batch; the larger label wins, so that the outcome has no race in it.
        rows = indices.unsqueeze(1).expand_as(label)
        newest = torch.full_like(self.chosen, -1).scatter_reduce_(0, rows, label, "amax")
        self.chosen.copy_(torch.where(newest >= 0, newest, self.chosen))


METHOD = Method(policy=Curriculum, threshold=0.95)
