"""What a model is worth: errors of the EMA model's mean head, and how its heads differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cbe.data import ImageSet
from cbe.data.augment import Augmenter
from cbe.ssl.losses import correlations
from cbe.training.batches import Images
from cbe.training.run import Run

PROBE_IMAGES = 256  # unlabeled images whose heads are compared
PROBE_VIEWS = 4  # K of lemma 2: weak views each of them is predicted on


class Evaluator:
    """Holds the evaluation sets on the device; all figures come from the EMA model in evaluation mode."""

    def __init__(self, run: Run) -> None:
        device = run.mode.device
        self._run = run
        self._validation = Images.put(run.data.validation, device)
        self._test = Images.put(run.data.test, device) if run.data.test else None
        unlabeled = run.data.unlabeled
        self._probe = Images.put(
            ImageSet(unlabeled.images[:PROBE_IMAGES], unlabeled.labels[:PROBE_IMAGES]), device
        )

    @torch.no_grad()
    def __call__(self) -> dict[str, Any]:
        network = self._run.ema.network.eval()
        try:
            probs = self._predict(self._validation.pixels)
            figures = _against(probs, self._validation.labels)
            if self._test is not None:
                test = _against(self._predict(self._test.pixels), self._test.labels)
                figures["test_error"] = test["validation_error"]
            figures |= self._heads()
        finally:
            network.train()
        figures["thresholds"] = self._run.policy.per_class().mean(dim=0).tolist()
        return figures

    def _predict(self, pixels: Tensor) -> Tensor:
        """Mean over heads of the probabilities, [N, K]."""
        run, size = self._run, self._run.config.training.eval_batch
        with run.mode.autocast():
            logits = [run.ema.network(run.inputs(part)).logits.float() for part in pixels.split(size)]
        return torch.cat(logits).softmax(dim=2).mean(dim=1)

    def _heads(self) -> dict[str, float | None]:
        """How alike the heads are, and lemma 2: the ensemble's variance over views against the heads' own."""
        run = self._run
        # A generator of its own: evaluating more or less often must not change what training draws.
        generator = torch.Generator().manual_seed(run.config.training.seed + 3)
        height, width = self._probe.pixels.shape[2:]
        weak = Augmenter("fixmatch", flip=False, height=height, width=width, generator=generator)
        predicted = []
        for _ in range(PROBE_VIEWS):
            view = weak.weak(self._probe.pixels, weak.draw_weak(len(self._probe.pixels)))
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
            off = correlations(private).abs().sum(dim=(1, 2)) - heads
            figures["head_correlation"] = (off / (heads * (heads - 1))).mean().item()
        return figures


def _against(probs: Tensor, labels: Tensor) -> dict[str, Any]:
    classes = probs.shape[1]
    predicted = probs.argmax(dim=1)
    confusion = torch.zeros(classes * classes, device=probs.device)
    confusion.scatter_add_(0, labels * classes + predicted, torch.ones_like(labels, dtype=confusion.dtype))
    chosen = probs.gather(1, labels.unsqueeze(1)).clamp_min(1e-12)
    return {
        "validation_error": (predicted != labels).float().mean().item(),
        "validation_loss": -chosen.log().mean().item(),
        "confusion": confusion.view(classes, classes).tolist(),
    }
