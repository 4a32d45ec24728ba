"""The ensembles of the paper's figure 2: what turns features into M predictions of K classes.

Every network answers with `Prediction`: logits [B, M, K], and the private feature maps where heads have any.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cbe.nn import backbones
from cbe.nn.layers import batch_norm, initialise
from cbe.spec import Network


class Prediction(NamedTuple):
    logits: Tensor  # [B, M, K]
    private: Tensor | None  # [B, M, C_G·H·W], what the low-bias loss decorrelates

    def rows(self, start: int, stop: int) -> Prediction:
        return Prediction(self.logits[start:stop], None if self.private is None else self.private[start:stop])


class Heads(nn.Module):
    """M linear classifiers as one contraction: [B, M, C] to [B, M, K]."""

    def __init__(self, heads: int, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, classes, features))
        self.bias = nn.Parameter(torch.zeros(heads, classes))
        if not self.weight.is_meta:
            for head in self.weight:
                nn.init.xavier_normal_(head)

    def forward(self, features: Tensor) -> Tensor:
        # Confidences are compared with thresholds near 1, where bfloat16 knows next to no values.
        with torch.autocast("cuda" if features.is_cuda else "cpu", enabled=False):
            return torch.einsum("bmc,mkc->bmk", features.float(), self.weight) + self.bias


class ChannelEnsemble(nn.Module):
    """One trunk, M heads that read C_F − C_G shared and C_G private channels each.

    C_G = 0 leaves all channels shared (multi-head), M = 1 leaves nothing to expand: then this *is* the plain
    network, parameter for parameter, so that `single` needs no class of its own.
    """

    def __init__(
        self, config: Network, channels: int, classes: int, heads: int = 1, private_channels: int = 0
    ) -> None:
        super().__init__()
        self.heads = heads
        self.private_channels = private_channels if heads > 1 else 0
        self.shared_channels = config.features - self.private_channels
        expanded = self.shared_channels + heads * self.private_channels  # C_F + (M−1)·C_G
        self.trunk = backbones.build(config, channels)
        self.expand = nn.Conv2d(config.features, expanded, 1) if self.private_channels else nn.Identity()
        self.norm = batch_norm(config)(expanded)
        self.activate = nn.LeakyReLU(config.leak, inplace=True)
        self.classify = Heads(heads, config.features, classes)
        initialise(self.expand, config.leak)

    def forward(self, images: Tensor) -> Prediction:
        maps = self.activate(self.norm(self.expand(backbones.as_map(self.trunk(images)))))
        pooled = maps.mean(dim=(2, 3), dtype=torch.float32)
        shared = pooled[:, : self.shared_channels].unsqueeze(1).expand(-1, self.heads, -1)
        if not self.private_channels:
            return Prediction(self.classify(shared), None)
        split = (self.heads, self.private_channels)
        own = pooled[:, self.shared_channels :].unflatten(1, split)
        private = maps[:, self.shared_channels :].unflatten(1, split).flatten(2)
        return Prediction(self.classify(torch.cat([shared, own], dim=2)), private)


class ModelEnsemble(nn.Module):
    """M whole networks; the costly bound that the others are measured against."""

    def __init__(self, config: Network, channels: int, classes: int, heads: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(ChannelEnsemble(config, channels, classes) for _ in range(heads))

    def forward(self, images: Tensor) -> Prediction:
        return Prediction(torch.cat([member(images).logits for member in self.members], dim=1), None)


def single(config: Network, channels: int, classes: int, heads: int, private_channels: int) -> nn.Module:
    return ChannelEnsemble(config, channels, classes)


def model(config: Network, channels: int, classes: int, heads: int, private_channels: int) -> nn.Module:
    return ModelEnsemble(config, channels, classes, heads)


def multihead(config: Network, channels: int, classes: int, heads: int, private_channels: int) -> nn.Module:
    return ChannelEnsemble(config, channels, classes, heads)


def channel(config: Network, channels: int, classes: int, heads: int, private_channels: int) -> nn.Module:
    return ChannelEnsemble(config, channels, classes, heads, private_channels)
