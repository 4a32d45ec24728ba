"""Backbones as small as can be that end in tokens, and in features they have pooled themselves."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from cbe.spec import Network
from cbe.spec.backbones import BACKBONES, Backbone, Family

PATCH = 4


class Tokens(nn.Module):
    """Images [B, C, H, W] to tokens [B, H·W/16, C_F], each of which looks at all others."""

    def __init__(self, config: Network, channels: int, features: int) -> None:
        super().__init__()
        # No bias where the ensemble's BatchNorm takes it out again.
        self.cut = nn.Conv2d(channels, features, PATCH, PATCH, bias=False)
        self.norm = nn.LayerNorm(features)
        self.queries = nn.Linear(features, 2 * features, bias=False)
        self.values = nn.Linear(features, features, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        queries, keys = self.queries(self.norm(tokens)).chunk(2, dim=2)
        mixed: Tensor = (queries @ keys.transpose(1, 2)).softmax(dim=2) @ self.values(tokens)
        return tokens + mixed


class Pooled(nn.Module):
    """Images [B, C, H, W] to features [B, C_F]."""

    def __init__(self, config: Network, channels: int, features: int) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(channels, features, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.convolve(images).relu().mean(dim=(2, 3))
        return features


def tokens(features: int) -> Backbone:
    return Backbone(
        f"{__name__}:Tokens",
        features,
        numbers=(features,),
        fewest_parameters=features * PATCH**2,
        sizes=range(PATCH, 129, PATCH),
    )


def pooled(features: int) -> Backbone:
    return Backbone(f"{__name__}:Pooled", features, numbers=(features,), channels=(1,))


def register(monkeypatch: Any) -> None:
    """Adds both to the registry until the test's end."""
    monkeypatch.setitem(BACKBONES, "tokens-WIDTH", Family(r"tokens-(\d+)", tokens, "any width, as tokens-20"))
    monkeypatch.setitem(BACKBONES, "pooled-WIDTH", Family(r"pooled-(\d+)", pooled, "any width, as pooled-20"))
