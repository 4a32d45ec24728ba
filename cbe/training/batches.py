"""Which images a step sees, in an order that a checkpoint can continue."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Images(NamedTuple):
    """A whole decoded set on the training device."""

    pixels: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N], −1 where unknown

    @classmethod
    def put(cls, images: ImageSet, device: torch.device) -> Images:
        # torch.tensor copies: arrays may be read-only memory maps, which torch cannot hold.
        return cls(torch.tensor(images.images, device=device), torch.tensor(images.labels, device=device))


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
            Sampler(len(self._labeled.labels), seed),
            Sampler(len(self._unlabeled.labels), seed + 1),
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
            self._labeled.pixels[labeled],
            self._labeled.labels[labeled],
            self._unlabeled.pixels[mine],
            mine,
            in_rank_order,
            self._unlabeled.labels[mine],
        )

    def state_dict(self) -> dict[str, Any]:
        return {"labeled": self._samplers[0].state_dict(), "unlabeled": self._samplers[1].state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._samplers[0].load_state_dict(state["labeled"])
        self._samplers[1].load_state_dict(state["unlabeled"])
