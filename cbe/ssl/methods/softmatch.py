"""SoftMatch (Chen et al. 2023): no cut-off; a prediction weighs as much as it is confident."""

from __future__ import annotations

import torch
from torch import Tensor

from cbe.ssl.method import Method
from cbe.ssl.thresholds import Policy, Shape

SIGMAS = 2.0


class TruncatedGaussian(Policy):
    """exp(−min(0, conf−μ)²/(2σ²/4)) of uniformly aligned predictions; μ and σ² are running moments."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.momentum = shape.settings.momentum
        self.register_buffer("mean", torch.full((shape.heads,), 1 / shape.classes))
        self.register_buffer("variance", torch.ones(shape.heads))
        self.register_buffer("profile", torch.zeros(shape.heads, shape.classes))
        self.register_buffer("started", torch.tensor(False))

    mean: Tensor  # μ [M]
    variance: Tensor  # σ² [M]
    profile: Tensor  # running mean prediction [M, K]
    started: Tensor

    def per_class(self) -> Tensor:
        """Full weight begins at the mean confidence."""
        return self.mean.unsqueeze(1).expand_as(self.profile)

    def forward(self, probs: Tensor, seen: Tensor, indices: Tensor) -> Tensor:
        step = 1 - self.momentum
        batch = seen.mean(dim=0)
        # The profile starts as the first batch's mean, not from a uniform one.
        self.profile.copy_(torch.where(self.started, self.profile.lerp(batch, step), batch))
        self.started.fill_(True)
        confidence = self._aligned(seen).amax(dim=2)
        self.mean.lerp_(confidence.mean(dim=0), step)
        if len(seen) > 1:  # one sample has no unbiased variance
            self.variance.lerp_(confidence.var(dim=0), step)
        below = (self._aligned(probs).amax(dim=2) - self.mean).clamp_max(0)
        return torch.exp(-below.square() / (2 * self.variance / SIGMAS**2).clamp_min(1e-12))

    def _aligned(self, probs: Tensor) -> Tensor:
        """Uniform alignment: scaled so that on average all classes are predicted equally often."""
        scaled = probs * (1 / probs.shape[2] + 1e-6) / (self.profile + 1e-6)
        return scaled / scaled.sum(dim=2, keepdim=True)


METHOD = Method(policy=TruncatedGaussian)
