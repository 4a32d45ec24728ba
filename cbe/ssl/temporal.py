"""The `temporal` ensemble (Laine & Aila 2017): an image's predictions so far, averaged, are its teacher.

The present one counts among them, so that an image has a teacher from its first visit on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PastPredictions(nn.Module):
    """Z ← αZ + (1−α)z for every image, and Z/(1−α^n) after n visits in its place."""

    def __init__(self, images: int, classes: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(images, 1, classes))
        self.register_buffer("visits", torch.zeros(images))

    mean: Tensor
    visits: Tensor

    def remember(self, seen: Tensor, indices: Tensor) -> None:
        """Takes in this step's predictions [N', 1, K]; an image that stands twice counts with their mean."""
        rows = indices.view(-1, 1, 1).expand_as(seen)
        updated = self.mean[indices].lerp(seen, 1 - self.momentum)
        self.mean.scatter_reduce_(0, rows, updated, "mean", include_self=False)
        self.visits.scatter_reduce_(0, indices, self.visits[indices] + 1, "amax", include_self=False)

    def forward(self, indices: Tensor) -> Tensor:
        """The averaged predictions [N, 1, K] of images that have been remembered at least once."""
        correction = 1 - self.momentum ** self.visits[indices]
        return self.mean[indices] / correction.view(-1, 1, 1)
