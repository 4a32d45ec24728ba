"""What a model is worth: errors of the EMA model's mean head, and how its heads differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cbe.data.augment import Augmenter
from cbe.ssl.losses import low_bias
from cbe.training.batches import Images
from cbe.training.run import Run

PROBE_IMAGES = 256  # unlabeled images whose heads are compared
PROBE_VIEWS = 4  # K of lemma 2: weak views each of them is predicted on


class Evaluator:
    """All figures come from the EMA model in evaluation mode, and are the same on all workers.

    Workers predict a share of the images each and exchange predictions, so all of them must evaluate.
    """

    def __init__(self, run: Run) -> None:
        device = run.mode.device
        self._run = run
        self._validation = Images.put(run.data.validation, device)
        self._test = Images.put(run.data.test, device) if run.data.test else None
        unlabeled = run.data.unlabeled
        # Spread over the whole set, which may be sorted by class.
        spread = np.linspace(0, len(unlabeled) - 1, min(PROBE_IMAGES, len(unlabeled))).astype(np.int64)
        self._probe = torch.tensor(unlabeled.take(spread).images, device=device)

    @torch.no_grad()
    def __call__(self) -> dict[str, Any]:
        network = self._run.ema.network.eval()
        try:
            probs, labels = self._predict(self._validation), self._validation.labels
            figures = {
                "validation_error": _error(probs, labels),
                "validation_loss": F.nll_loss(probs.clamp_min(1e-12).log(), labels).item(),
                "confusion": _confusion(probs, labels),
                **self._heads(),
            }
            if self._test is not None:
                figures["test_error"] = _error(self._predict(self._test), self._test.labels)
        finally:
            network.train()
        figures["thresholds"] = self._run.policy.per_class().mean(dim=0).tolist()
        return figures

    def _predict(self, images: Images) -> Tensor:
        """Mean over heads of the probabilities, [N, K]."""
        run, world, size = self._run, self._run.world, self._run.config.training.eval_batch
        share = -(-len(images) // world.size)
        mine = torch.arange(share, device=run.mode.device) + world.rank * share
        mine = mine.clamp_max(len(images) - 1)  # the last share is filled up, and cut to length below
        with run.mode.autocast():
            logits = [
                run.ema.network(run.inputs(images.pixels(part))).logits.float() for part in mine.split(size)
            ]
        return world.gather(torch.cat(logits).softmax(dim=2).mean(dim=1))[: len(images)]

    def _heads(self) -> dict[str, float | None]:
        """How alike the heads are, and lemma 2: the ensemble's variance over views against the heads' own."""
        run = self._run
        # A generator of its own: evaluating more or less often must not change what training draws.
        generator = torch.Generator().manual_seed(run.config.training.seed + 3)
        height, width = self._probe.shape[2:]
        weak = Augmenter("fixmatch", flip=run.data.flip, height=height, width=width, generator=generator)
        predicted = []
        for _ in range(PROBE_VIEWS):
            view = weak.weak(self._probe, weak.draw_weak(len(self._probe)))
            with run.mode.autocast():
                predicted.append(run.ema.network(run.inputs(view)))
        probs = torch.stack([p.logits.float() for p in predicted]).softmax(dim=3)  # [V, N, M, K]
        figures: dict[str, float | None] = {
            "variance_ensemble": probs.mean(dim=2).var(dim=0, correction=0).sum(dim=1).mean().item(),
            "variance_heads": probs.var(dim=0, correction=0).sum(dim=2).mean().item(),
            "head_disagreement": None,
            "head_correlation": None,
        }
        heads = probs.shape[2]
        if heads > 1:
            labels = probs[0].argmax(dim=2)
            differ = (labels.unsqueeze(1) != labels.unsqueeze(2)).float()
            figures["head_disagreement"] = (differ.sum(dim=(1, 2)) / (heads * (heads - 1))).mean().item()
        private = predicted[0].private
        if private is not None:
            # L_fu sums over all pairs and divides by M; there are M·(M−1).
            figures["head_correlation"] = low_bias(private, "abs").item() / (heads - 1)
        return figures


def _error(probs: Tensor, labels: Tensor) -> float:
    return (probs.argmax(dim=1) != labels).float().mean().item()


def _confusion(probs: Tensor, labels: Tensor) -> list[list[float]]:
    """How often each class (rows) is predicted as each class (columns)."""
    classes = probs.shape[1]
    cells = torch.zeros(classes * classes, device=probs.device)
    cells.scatter_add_(0, labels * classes + probs.argmax(dim=1), torch.ones_like(labels, dtype=cells.dtype))
    matrix: list[list[float]] = cells.view(classes, classes).tolist()
    return matrix
