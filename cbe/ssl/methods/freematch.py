"""FreeMatch (Wang et al. 2023): thresholds that adapt themselves, and a fairness term between classes."""

from __future__ import annotations

import torch
from torch import Tensor

from cbe.ssl.losses import one_hot
from cbe.ssl.method import Method
from cbe.ssl.thresholds import Policy, Shape
from cbe.ssl.world import World


class SelfAdaptive(Policy):
    """SAT: a global τ and a class profile p̃, both running means from 1/K, updated before they are applied."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.momentum = shape.settings.momentum
        uniform = torch.full((shape.heads, shape.classes), 1 / shape.classes)
        self.register_buffer("tau", uniform[:, 0].clone())
        self.register_buffer("profile", uniform.clone())
        self.register_buffer("histogram", uniform.clone())

    tau: Tensor  # [M]
    profile: Tensor  # p̃ [M, K]
    histogram: Tensor  # h̃ [M, K]

    def per_class(self) -> Tensor:
        return self.tau.unsqueeze(1) * self.profile / self.profile.amax(dim=1, keepdim=True)

    def forward(self, probs: Tensor, seen: Tensor, indices: Tensor) -> Tensor:
        confidence, label = seen.max(dim=2)
        step = 1 - self.momentum
        self.tau.lerp_(confidence.mean(dim=0), step)
        self.profile.lerp_(seen.mean(dim=0), step)
        self.histogram.lerp_(one_hot(label, seen.shape[2]).mean(dim=0), step)
        confidence, label = probs.max(dim=2)
        return (confidence >= self.per_class().gather(1, label.T).T).float()

    def fairness(self, logits: Tensor, weight: Tensor, world: World) -> Tensor:
        """SAF: Σ_c N(p̃/h̃)_c·log N(p̄/h̄)_c, p̄ and h̄ of view 1's masked samples; 0 where there are none."""
        strong = world.gather(logits.float()).softmax(dim=2)
        mask = world.gather(weight).unsqueeze(2)
        count = mask.sum(dim=0).clamp_min(1)
        mean = (mask * strong).sum(dim=0) / count
        predicted = (mask * one_hot(strong.argmax(dim=2), strong.shape[2])).sum(dim=0) / count
        expected = _sum_to_one(_ratio(self.profile, self.histogram))
        actual = _sum_to_one(_ratio(mean, predicted))
        return ((expected * (actual + 1e-12).log()).sum(dim=1) * (mask.sum(dim=(0, 2)) > 0)).mean()


def _ratio(p: Tensor, h: Tensor) -> Tensor:
    """p/h, and 0 for classes nothing was predicted as."""
    return torch.where(h > 0, p / h.clamp_min(1e-12), 0.0)


def _sum_to_one(x: Tensor) -> Tensor:
    return x / x.sum(dim=1, keepdim=True).clamp_min(1e-12)


METHOD = Method(policy=SelfAdaptive, extra=SelfAdaptive.fairness, fairness=0.001)
