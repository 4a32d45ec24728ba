"""FixMatch as the best-known open PyTorch implementations write it, for comparison.

One DataLoader for labeled and one for unlabeled images, Pillow transforms in worker processes, the three
kinds of view interleaved and put through one forward, and an EMA that walks over the state dict. Written from
the published recipe.
"""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from benchmarks.views import TwoViews, pillow_views
from cbe import nn as networks
from cbe.spec import TrainConfig

BATCH, RATIO = 32, 7
STEPS = 3  # a call


class _Labeled(Dataset[tuple[Tensor, int]]):
    def __init__(self, views: TwoViews, labels: Tensor) -> None:
        self.views, self.labels = views, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.views[index][0], int(self.labels[index])


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _interleave(x: Tensor, size: int) -> Tensor:
    shape = list(x.shape)
    return x.reshape([-1, size, *shape[1:]]).transpose(0, 1).reshape([-1, *shape[1:]])


def _restore(x: Tensor, size: int) -> Tensor:
    shape = list(x.shape)
    return x.reshape([size, -1, *shape[1:]]).transpose(0, 1).reshape([-1, *shape[1:]])


def _signal_workers(number: signal.Signals) -> None:
    for child in multiprocessing.active_children():
        if child.pid:
            os.kill(child.pid, number)


class PlainFixMatch:
    """Calling it takes three steps.

    In between its workers stand still, or they would fetch ahead while others are measured.
    """

    def __init__(self, model: str, images: Tensor, labels: Tensor, workers: int = 2) -> None:
        config = TrainConfig.model_validate({"model": model, "ensemble": "single"})
        torch.manual_seed(0)
        self.model: nn.Module = networks.build(config, 3, 10)
        self.ema = copy.deepcopy(self.model)
        self.optimiser = torch.optim.SGD(
            self.model.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: max(0.0, math.cos(math.pi * 7.0 / 16.0 * step / 2**20))
        )
        views = TwoViews(images, pillow_views("fixmatch"), as_pillow=True)

        def loader(data: Dataset[Any], size: int) -> Iterator[Any]:
            sampler = RandomSampler(data, replacement=True, num_samples=2**20)  # type: ignore[arg-type]
            return _endless(DataLoader(data, size, sampler=sampler, num_workers=workers // 2, drop_last=True))

        self.labeled = loader(_Labeled(views, labels), BATCH)
        self.unlabeled = loader(views, BATCH * RATIO)

    def __call__(self) -> None:
        _signal_workers(signal.SIGCONT)
        for _ in range(STEPS):
            self.step()
        _signal_workers(signal.SIGSTOP)

    def close(self) -> None:
        """Lets the workers go; stopped ones would never end."""
        _signal_workers(signal.SIGCONT)

    def step(self) -> None:
        x, labels = next(self.labeled)
        weak, strong = next(self.unlabeled)
        inputs = _interleave(torch.cat((x, weak, strong)), 2 * RATIO + 1)
        logits = _restore(self.model(inputs).logits[:, 0], 2 * RATIO + 1)
        for_labels, for_unlabeled = logits[:BATCH], logits[BATCH:]
        by_weak, by_strong = for_unlabeled.chunk(2)
        confidence, target = by_weak.detach().softmax(dim=-1).max(dim=-1)
        mask = confidence.ge(0.95).float()
        unlabeled = (F.cross_entropy(by_strong, target, reduction="none") * mask).mean()
        loss = F.cross_entropy(for_labels, labels) + unlabeled
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        loss.item(), mask.mean().item()  # read for the progress bar in every step
        with torch.no_grad():
            for mine, theirs in zip(
                self.ema.state_dict().values(), self.model.state_dict().values(), strict=True
            ):
                mine.copy_(mine * 0.999 + theirs * 0.001)
