"""Figures that add up on the device and are read, for all workers at once, every few steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cbe.errors import NonFiniteLoss
from cbe.ssl.world import World

TERMS = ("loss", "labeled", "unlabeled", "lb", "lv", "fairness")
COUNTS = ("steps", "used", "correct", "weight", "agreed", "samples")


class Meter:
    """Sums since the last reset, the pseudo-labels' confusions, and the first loss that was not finite."""

    def __init__(self, classes: int, device: torch.device, world: World) -> None:
        self._world = world
        self._sums = torch.zeros(len(TERMS) + len(COUNTS), device=device)
        self._confusion = torch.zeros(classes * classes, device=device)
        self._bad = torch.full((1 + len(TERMS),), -1.0, device=device)  # step, terms
        self._one = torch.ones((), device=device)

    def losses(self, step: int, terms: dict[str, Tensor]) -> None:
        zero = torch.zeros_like(self._one)
        values = torch.stack([terms.get(name, zero).detach().float() for name in TERMS])
        self._sums[: len(TERMS)] += values
        self._sums[len(TERMS)] += 1
        first = (self._bad[0] < 0) & ~values.isfinite().all()
        self._bad = torch.where(first, torch.cat([self._one[None] * step, values]), self._bad)

    def pseudo_labels(
        self, target: Tensor, weight: Tensor, used: Tensor, agreement: float, truth: Tensor
    ) -> None:
        """Takes in pseudo-labels [N, K], the heads' weights [N, M], and each one's weight in the loss [N]."""
        label, known = target.argmax(dim=1), truth >= 0
        used = used * known
        agreed = (weight.mean(dim=1) >= agreement - 1e-6).float()
        counts = [used.sum(), (used * (label == truth)).sum(), weight.mean(dim=1).sum(), agreed.sum()]
        self._sums[len(TERMS) + 1 :] += torch.stack([*counts, self._one * len(truth)])
        cell = truth.clamp_min(0) * target.shape[1] + label
        self._confusion.scatter_add_(0, cell, used)

    def read(self) -> dict[str, float | None]:
        """Means since the last reset over all workers; raises where a loss was not finite.

        `sampling_rate` is η: the share of confident predictions, over samples and heads (of weight, where a
        policy weighs); `sampling_rate_ensemble` is η_CBE: of samples with γ of their heads confident.
        `pseudo_accuracy` weighs each pseudo-label as the loss does.
        """
        workers = self._world.gather(torch.cat([self._bad, self._sums]).unsqueeze(0)).tolist()
        for step, *terms in (row[: 1 + len(TERMS)] for row in workers):
            if step >= 0:
                raise NonFiniteLoss(int(step), dict(zip(TERMS, terms, strict=True)))
        values = [sum(column) for column in zip(*workers, strict=True)][1 + len(TERMS) :]
        count = dict(zip(COUNTS, values[len(TERMS) :], strict=False))
        steps = max(count["steps"], 1)
        means: dict[str, float | None] = {
            ("loss" if name == "loss" else f"loss_{name}"): value / steps
            for name, value in zip(TERMS, values, strict=False)
        }
        samples = count["samples"]
        means["pseudo_accuracy"] = count["correct"] / count["used"] if count["used"] else None
        means["sampling_rate"] = count["weight"] / samples if samples else None
        means["sampling_rate_ensemble"] = count["agreed"] / samples if samples else None
        return means

    def confusion(self) -> list[list[float]]:
        """Weight of pseudo-labels by true class (rows) and given class (columns)."""
        side = round(len(self._confusion) ** 0.5)
        total = self._world.gather(self._confusion.unsqueeze(0)).sum(dim=0)
        matrix: list[list[float]] = total.view(side, side).tolist()
        return matrix

    def state_dict(self) -> dict[str, Any]:
        return {"names": [*TERMS, *COUNTS], "sums": self._sums, "confusion": self._confusion}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with these sums; one that the checkpoint does not have begins at 0."""
        self.reset()
        sums = dict(zip(state["names"], state["sums"].to(self._sums.device), strict=True))
        self._sums += torch.stack([sums.get(name, 0 * self._one) for name in (*TERMS, *COUNTS)])
        self._confusion += state["confusion"].to(self._confusion.device)

    def reset(self) -> None:
        self._sums.zero_()
        self._confusion.zero_()
