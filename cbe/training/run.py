"""Everything a run carries from one step to the next, and so everything a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cbe import nn as networks
from cbe.data import Dataset
from cbe.data.augment import Augmenter, normalize
from cbe.nn import Prediction, backbones
from cbe.spec import TrainConfig
from cbe.ssl import method_of, resolve
from cbe.ssl.temporal import PastPredictions
from cbe.ssl.thresholds import Fixed, Shape
from cbe.ssl.world import World
from cbe.training import optimiser
from cbe.training.batches import Batches
from cbe.training.device import choose, keep_freed_memory
from cbe.training.ema import Ema
from cbe.training.meter import Meter


class Run:
    """One model in training on one device, possibly one worker of several."""

    def __init__(self, config: TrainConfig, data: Dataset, world: World | None = None) -> None:
        self.data, self.world = data, world or World()
        self.mode = choose(config.training)
        if self.mode.device.type == "cpu":
            keep_freed_memory()
        # The precision that is used is part of the config, and so of the checkpoint.
        precise = config.training.model_copy(update={"precision": self.mode.precision_name})
        self.config = config = resolve(config.model_copy(update={"training": precise}))
        self.method = method_of(config)
        self.step = 0
        device, seed, classes = self.mode.device, config.training.seed, len(data.classes)
        _, channels, height, width = data.labeled.shape
        backbones.require_fit(config.model, channels, height, width)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.build(config, channels, classes)
        self.network = network.to(device).to(memory_format=self.mode.layout)  # type: ignore[call-overload]
        self.ema = Ema(self.network, config.training.ema, config.training.ema_warmup)
        if self.world.group is not None and self.world.size > 1:
            from cbe.nn.norm import synchronise  # here: torch's compiler comes with it, and takes seconds

            for each in (self.network, self.ema.network):  # mean teacher's teacher sees batches too
                synchronise(each, self.world.group, device)
        self.optimiser = optimiser.make(self.network, config.training)
        shape = Shape(config.heads, classes, len(data.unlabeled.labels), config.method)
        self.policy = self.method.policy(shape).to(device)
        self.past: PastPredictions | None = None
        if config.ensemble.kind == "temporal":
            self.past = PastPredictions(shape.images, classes, config.ensemble.momentum).to(device)
        training = config.training
        self.batches = Batches(data, training.batch_size, training.unlabeled_ratio, seed, device, self.world)
        self.generator = torch.Generator().manual_seed(seed + 2)
        self.augmenter = Augmenter(
            training.randaugment, flip=data.flip, height=height, width=width, generator=self.generator
        )
        mean, std = config.model.normalisation(data.mean, data.std)
        self.mean, self.std = torch.tensor(mean, device=device), torch.tensor(std, device=device)
        self.meter = Meter(classes, device, self.world)
        self.forward: Callable[[Tensor], Prediction] = self._callable(self.network)
        self.teacher: Callable[[Tensor], Prediction] = self.ema.network

    def _callable(self, network: nn.Module) -> Callable[[Tensor], Prediction]:
        wrapped: nn.Module = network
        if self.world.size > 1:
            # Buffers are the same on all workers already: synchronised norms make them so.
            wrapped = DistributedDataParallel(
                network, process_group=self.world.group, forward_sync_buffers=False
            )
        return torch.compile(wrapped) if self.mode.compile else wrapped

    def weak(self, images: Tensor) -> Tensor:
        """A weak view of every image, uint8."""
        world = self.world
        draw = self.augmenter.draw_weak(len(images) * world.size).part(world.rank, world.size)
        return self.augmenter.weak(images, draw)

    def strong(self, images: Tensor) -> Tensor:
        """A strong view of every image, uint8."""
        world = self.world
        draw = self.augmenter.draw_strong(len(images) * world.size).part(world.rank, world.size)
        return self.augmenter.strong(images, draw)

    def inputs(self, *views: Tensor) -> Tensor:
        """Views as the network takes them: one normalised float batch."""
        pixels = torch.cat(views) if len(views) > 1 else views[0]
        return normalize(pixels, self.mean, self.std).contiguous(memory_format=self.mode.layout)

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "network": self.network.state_dict(),
            "ema": self.ema.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "policy": self.policy.state_dict(),
            "past": self.past.state_dict() if self.past else {},
            "batches": self.batches.state_dict(),
            "augmenter": self.generator.get_state(),
            "meter": self.meter.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.network.load_state_dict(state["network"])
        self.ema.network.load_state_dict(state["ema"])
        # Rates, decay and a fixed threshold are settings: they come from the config, which may have changed.
        settings = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": state["optimiser"]["state"], "param_groups": settings})
        if not isinstance(self.policy, Fixed):
            self.policy.load_state_dict(state["policy"])
        if self.past:
            self.past.load_state_dict(state["past"])
        self.batches.load_state_dict(state["batches"])
        self.generator.set_state(state["augmenter"])
        self.meter.load_state_dict(state["meter"])
