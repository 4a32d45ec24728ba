"""Which images a step sees, in an order that a checkpoint can continue."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cbe.data import Dataset, ImageSet
from cbe.data.augment.transfer import to_device
from cbe.errors import ConfigError, Fault
from cbe.ssl.world import World


class Sampler:
    """Endless batches without replacement within an epoch, drawn on the host."""

    def __init__(self, population: int, seed: int) -> None:
        self._population = population
        self._generator = torch.Generator().manual_seed(seed)
        self._order = self._shuffled()
        self._position = 0

    def _shuffled(self) -> Tensor:
        return torch.randperm(self._population, generator=self._generator)

    def draw(self, count: int) -> Tensor:
        """The next `count` indices; a batch larger than the set runs through it several times."""
        parts = []
        while count:
            part = self._order[self._position : self._position + count]
            self._position += len(part)
            count -= len(part)
            parts.append(part)
            if self._position == self._population:
                self._order, self._position = self._shuffled(), 0
        return torch.cat(parts)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._generator.get_state(), "order": self._order, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["rng"])
        self._order, self._position = state["order"], state["position"]


@dataclass(frozen=True)
class Images:
    """A whole decoded set as a device reads it: a CPU where it lies, shared with others, a GPU as a copy."""

    labels: Tensor  # int64 [N], −1 where unknown
    _bases: tuple[Tensor, ...]  # uint8 [N', C, H, W], which nobody may write to
    _rows: Tensor | None  # [N], as in ImageSet

    @classmethod
    def put(cls, images: ImageSet, device: torch.device) -> Images:
        labels = torch.tensor(images.labels, device=device)
        if device.type != "cpu":
            return cls(labels, (torch.tensor(images.images, device=device),), None)
        rows = None if images.rows is None else torch.tensor(images.rows)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            return cls(labels, tuple(torch.from_numpy(base) for base in images.bases), rows)

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, indices: Tensor) -> Tensor:
        """A copy of some images, uint8 [B, C, H, W]."""
        rows = indices if self._rows is None else self._rows[indices]
        first, *second = self._bases
        if not second:
            return first.index_select(0, rows)  # several times faster than first[rows]
        pixels = first.index_select(0, rows.clamp_max(len(first) - 1))
        # There are two arrays on a CPU only, where looking at values is no waiting.
        late = torch.from_numpy(np.flatnonzero(rows.numpy() >= len(first)))
        return pixels.index_copy_(0, late, second[0].index_select(0, rows[late] - len(first)))


class Batch(NamedTuple):
    """This worker's share of a step. `truth` is for figures only: no loss and no threshold may see it."""

    labeled: Tensor  # uint8 [B, C, H, W]
    labels: Tensor  # [B]
    unlabeled: Tensor  # uint8 [μB, C, H, W]
    indices: Tensor  # [μB], which unlabeled images these are
    all_indices: Tensor  # the same for all workers
    truth: Tensor  # [μB]


class Batches:
    """Every worker draws the same global batch and keeps its share, so that the batch is always the same."""

    def __init__(
        self, data: Dataset, batch_size: int, ratio: int, seed: int, device: torch.device, world: World
    ) -> None:
        if batch_size % world.size:
            problem = f"{batch_size} cannot be shared equally by {world.size} workers"
            raise ConfigError([Fault("training.batch_size", problem, "make it a multiple of the workers")])
        self._device, self._world = device, world
        self._labeled, self._unlabeled = Images.put(data.labeled, device), Images.put(data.unlabeled, device)
        self._sizes = (batch_size, batch_size * ratio)
        self._samplers = (
            Sampler(len(self._labeled), seed),
            Sampler(len(self._unlabeled), seed + 1),
        )

    def draw(self) -> Batch:
        labeled, unlabeled = (
            to_device(sampler.draw(size).numpy(), self._device)
            for sampler, size in zip(self._samplers, self._sizes, strict=True)
        )
        rank, size = self._world.rank, self._world.size
        mine = unlabeled[rank::size]
        in_rank_order = torch.cat([unlabeled[worker::size] for worker in range(size)])
        labeled = labeled[rank::size]
        return Batch(
            self._labeled.pixels(labeled),
            self._labeled.labels[labeled],
            self._unlabeled.pixels(mine),
            mine,
            in_rank_order,
            self._unlabeled.labels[mine],
        )

    def state_dict(self) -> dict[str, Any]:
        return {"labeled": self._samplers[0].state_dict(), "unlabeled": self._samplers[1].state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._samplers[0].load_state_dict(state["labeled"])
        self._samplers[1].load_state_dict(state["unlabeled"])
