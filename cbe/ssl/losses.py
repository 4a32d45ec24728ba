"""The losses, each beside its equation. M heads, K classes; all in float32, also under autocast.

`logits` and `probs` are [N, M, K]; `weight` [N, M] is a threshold policy's word on each head's prediction:
0 or 1 for a threshold, in between for SoftMatch.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-8


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Like torch's, which reads the labels to check them and so would wait for the device."""
    return (labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)).float()


def supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """Eq. 1: mean cross-entropy over samples, heads and weak views (views are rows here)."""
    heads = logits.shape[1]
    return F.cross_entropy(logits.float().flatten(0, 1), labels.repeat_interleave(heads))


def soft_target(probs: Tensor, weight: Tensor) -> Tensor:
    """Eq. 2: P[i] = 1/M Σ_m 1[max p[i,m] ≥ τ]·p[i,m]; sums to the share of confident heads."""
    return (weight.unsqueeze(2) * probs).mean(dim=1)


def hard_target(probs: Tensor, weight: Tensor, agreement: float) -> Tensor:
    """The class that all heads together prefer, weighted by the share of confident heads if at least γ."""
    share = weight.mean(dim=1)
    kept = share * (share >= agreement - 1e-6)  # 4 of 5 heads are γ = 0.8, whatever the rounding
    return one_hot(probs.mean(dim=1).argmax(dim=1), probs.shape[2]) * kept.unsqueeze(1)


def ensemble_target(probs: Tensor, weight: Tensor, kind: Literal["soft", "hard"], agreement: float) -> Tensor:
    return soft_target(probs, weight) if kind == "soft" else hard_target(probs, weight, agreement)


def ensemble(logits: Tensor, target: Tensor) -> Tensor:
    """Eq. 3: cross-entropy of every head's view 1 against P, over all μB samples, selected or not."""
    return -(target.unsqueeze(1) * logits.float().log_softmax(dim=2)).sum(dim=2).mean()


def hard_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The one-head loss of FixMatch and its kin: the target's class, weighted, over all μB samples."""
    each = F.cross_entropy(logits.float().flatten(0, 1), target.argmax(dim=2).flatten(), reduction="none")
    return (each * weight.flatten()).mean()


def soft_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The one-head loss of UDA: the whole target distribution, weighted, over all μB samples."""
    each = -(target * logits.float().log_softmax(dim=2)).sum(dim=2)
    return (each * weight).mean()


def squared_error(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The one-head loss of consistency methods: mean over classes of the squared difference."""
    each = (logits.float().softmax(dim=2) - target).square().mean(dim=2)
    return (each * weight).mean()


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Correlation along the last dimension; 0, never NaN, where either side is constant."""
    a, b = _standardised(a.float()), _standardised(b.float())
    return (a * b).sum(dim=-1)


def _standardised(x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().sum(dim=-1, keepdim=True) + EPSILON)


def low_bias(
    private: Tensor,
    correlation: Literal["abs", "square", "signed"] = "abs",
    pairs: Literal["all", "ring"] = "all",
) -> Tensor:
    """L_fu: correlation between the private features [N, M, D] of every two heads, per sample, over M.

    `ring` compares each head with the next one only, over the whole batch at once, and moves the first of the
    two: the reading of the paper's released code.
    """
    heads = private.shape[1]
    if pairs == "ring":
        whole = private.float().transpose(0, 1).flatten(1)
        return _sized(pearson(whole, whole.roll(-1, dims=0).detach()), correlation).sum() / heads
    each = correlations(private)
    off_diagonal = 1 - torch.eye(heads, device=private.device)
    return (_sized(each, correlation) * off_diagonal).sum(dim=(1, 2)).mean() / heads


def correlations(private: Tensor) -> Tensor:
    """Pearson correlation between the private features of all heads: [N, M, M]."""
    z = _standardised(private.float())
    return z @ z.mT


def _sized(correlation: Tensor, kind: str) -> Tensor:
    if kind == "abs":
        return correlation.abs()
    return correlation.square() if kind == "square" else correlation


def low_variance(logits: Tensor, labels: Tensor) -> Tensor:
    """L_lv = 1 − Pearson(ensemble probabilities [B·K], one-hot labels [B·K]) on the labeled batch."""
    mean = logits.float().softmax(dim=2).mean(dim=1)
    return 1 - pearson(mean.flatten(), one_hot(labels, logits.shape[2]).flatten())
