"""Backbones: images [B, C, H, W] to C_F features, of the image or of each of its places.

A backbone returns one of three forms, neither normalised nor activated at its end:

- [B, C_F, H, W]: a map, as convolutional networks have it;
- [B, T, C_F]: tokens, as transformers have them, without a class token;
- [B, C_F]: features that it has pooled itself, such as a class token.

The ensemble expands, normalises, activates and pools all three alike. BatchNorm in a backbone is
`BatchNorm2d`, which can be synchronised over workers. A batch may have no images: `cbe.nn.cost` counts
with one.
"""

from __future__ import annotations

from pkgutil import resolve_name

from torch import Tensor, nn

from cbe.errors import InputError
from cbe.spec import Network


def build(config: Network, channels: int) -> nn.Module:
    """The backbone that a config names, initialised, for images of so many channels."""
    found = config.backbone
    backbone: nn.Module = resolve_name(found.builder)(config, channels, *found.numbers)
    return backbone


def require_fit(config: Network, channels: int, height: int, width: int) -> None:
    """Refuses images that a backbone does not take."""
    problem = config.backbone.image_problem(channels, height, width)
    if problem:
        raise InputError(f"model.name: {config.name} does not fit the images: {problem}")


def as_map(features: Tensor) -> Tensor:
    """Any of the three forms as [B, C_F, H, W]: tokens as one column, pooled features as one place."""
    if features.ndim == 3:
        return features.transpose(1, 2).unsqueeze(3)
    if features.ndim == 2:
        return features[:, :, None, None]
    return features
