"""One temperature for all predictions, fitted on validation labels (Guo et al. 2017)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cbe.models.about import Calibration

BINS = 15
# Where every validation image is predicted right, the likelihood alone would go on to a temperature of 0.
COLDEST, HOTTEST = 0.1, 10.0
_FLOOR = 1e-12


def calibrated(probs: Tensor, temperature: float) -> Tensor:
    """p ∝ exp(log p̄ / T), in float64.

    >>> calibrated(torch.tensor([[0.2, 0.8]]), 1.0).sum().item()
    1.0
    """
    return (probs.double().clamp_min(_FLOOR).log() / temperature).softmax(dim=1)


def fit(probs: Tensor, labels: Tensor) -> Calibration:
    """The temperature with the lowest negative log-likelihood; 1 where no other is better."""
    from scipy.optimize import minimize_scalar

    before = loss(probs, labels)
    found = minimize_scalar(
        lambda log: loss(calibrated(probs, math.exp(log)), labels),
        bounds=(math.log(COLDEST), math.log(HOTTEST)),
        method="bounded",
    )
    temperature = math.exp(float(found.x))
    after = calibrated(probs, temperature)
    if loss(after, labels) >= before:
        temperature, after = 1.0, probs
    return Calibration(
        temperature=temperature,
        n=len(labels),
        nll_before=before,
        nll_after=loss(after, labels),
        ece_before=expected_error(probs, labels),
        ece_after=expected_error(after, labels),
    )


def loss(probs: Tensor, labels: Tensor) -> float:
    """The mean negative log-likelihood."""
    chosen = probs.double().gather(1, labels[:, None])
    return max(0.0, -chosen.clamp_min(_FLOOR).log().mean().item())


def expected_error(probs: Tensor, labels: Tensor) -> float:
    """How far confidence and accuracy lie apart, over bins of equal width weighted by their images.

    >>> expected_error(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1]))  # half right at 0.9
    0.4
    """
    confidence, predicted = probs.double().max(dim=1)
    right = (predicted == labels).double()
    place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add_(0, place, confidence - right)
    return round(min(1.0, gaps.abs().sum().item() / len(labels)), 6)
