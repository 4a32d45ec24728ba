"""What an augmentation draws: recipes, and the random choices of one batch, kept on the host.

Drawing on the host costs microseconds, is restored from the generator's state, and tells which samples want
which operation without asking the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cbe.data.augment.transfer import Floats


class Op(IntEnum):
    """RandAugment's pool; operations that are computed together stand together (see `augmenter.GROUPS`)."""

    ROTATE = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    AUTOCONTRAST = 5
    EQUALIZE = 6
    POSTERIZE = 7
    SOLARIZE = 8
    BRIGHTNESS = 9
    CONTRAST = 10
    COLOR = 11
    SHARPNESS = 12
    IDENTITY = 13


# The parameter of an operation at strength s is base + span·s, and `signed` ones take either sign. Both
# published recipes share these ranges and differ in how they draw s.
_FACTOR = (0.05, 0.9, False)
_RANGES: dict[Op, tuple[float, float, bool]] = {
    Op.ROTATE: (0, 30, True),  # degrees
    Op.SHEAR_X: (0, 0.3, True),
    Op.SHEAR_Y: (0, 0.3, True),
    Op.TRANSLATE_X: (0, 0.3, True),  # share of the width, turned into pixels by the draw
    Op.TRANSLATE_Y: (0, 0.3, True),  # share of the height
    Op.POSTERIZE: (4, 4, False),  # bits kept
    Op.SOLARIZE: (256, -256, False),  # threshold: the stronger, the more is inverted
    Op.BRIGHTNESS: _FACTOR,
    Op.CONTRAST: _FACTOR,
    Op.COLOR: _FACTOR,
    Op.SHARPNESS: _FACTOR,
}
_BASE, _SPAN, _SIGNED = np.array([_RANGES.get(op, (0, 0, False)) for op in Op], dtype=np.float64).T


def nearest(pixels: Floats) -> Floats:
    """The whole shift Pillow makes of a broken one: it samples at floor(x + 1/2 + shift)."""
    return np.floor(pixels + 0.5)


@dataclass(frozen=True)
class Recipe:
    """How the strong view is drawn; see METHOD, "Training recipe"."""

    layers: int  # operations a sample
    probability: float  # of applying each
    levels: int | None  # strength is 1..levels-1 of levels; None: uniform over [0, 1)
    cutout: tuple[float, float]  # side of the box as a share of the image's, uniform between the two
    whole: Callable[[Floats], Floats]  # how a translation becomes whole pixels


RECIPES: dict[str, Recipe] = {
    "fixmatch": Recipe(layers=2, probability=0.5, levels=10, cutout=(0.5, 0.5), whole=np.trunc),
    "usb": Recipe(layers=3, probability=1.0, levels=None, cutout=(0.0, 0.5), whole=nearest),
}


@dataclass(frozen=True)
class WeakDraw:
    """Output pixel (y, x) is pixel (y + dy, x + dx) of the image, flipped first where `flip`; [N] each."""

    flip: Tensor
    dy: Tensor
    dx: Tensor

    def __len__(self) -> int:
        return len(self.flip)

    def part(self, rank: int, size: int) -> Self:
        """Samples rank, rank + size, …: the share of one worker of a batch drawn for all."""
        keep = slice(rank, None, size)
        return type(self)(self.flip[keep], self.dy[keep], self.dx[keep])


@dataclass(frozen=True)
class StrongDraw:
    weak: WeakDraw
    op: Tensor  # [N, layers], of Op; an operation that is not applied is the identity
    magnitude: Tensor  # [N, layers], the operation's own parameter with its sign, float64 as in Pillow
    box: Tensor  # [N, 4], cutout: top, left, bottom, right, the last two exclusive

    def __len__(self) -> int:
        return len(self.weak)

    def part(self, rank: int, size: int) -> Self:
        keep = slice(rank, None, size)
        return type(self)(self.weak.part(rank, size), self.op[keep], self.magnitude[keep], self.box[keep])


def draw_weak(n: int, *, flip: bool, height: int, width: int, generator: torch.Generator) -> WeakDraw:
    # The coin is tossed also when it is not looked at, so that `flip` changes no other draw.
    coin = torch.randint(2, (n,), generator=generator, dtype=torch.bool)
    dy = torch.randint(-(height // 8), height // 8 + 1, (n,), generator=generator)
    dx = torch.randint(-(width // 8), width // 8 + 1, (n,), generator=generator)
    return WeakDraw(coin if flip else torch.zeros_like(coin), dy, dx)


def draw_ops(
    recipe: Recipe, n: int, *, height: int, width: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Operation and magnitude of every sample and layer."""
    shape = (n, recipe.layers)
    op = torch.randint(len(Op), shape, generator=generator).numpy()
    if recipe.probability < 1:
        op[torch.rand(shape, generator=generator).numpy() >= recipe.probability] = Op.IDENTITY
    if recipe.levels:
        strength = torch.randint(1, recipe.levels, shape, generator=generator).numpy()
    else:
        strength = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
    # In the order of the published code, so that a whole number of pixels stays whole.
    magnitude = _SPAN[op] * strength / (recipe.levels or 1) + _BASE[op]
    negative = torch.randint(2, shape, generator=generator).numpy() * _SIGNED[op]
    magnitude *= 1 - 2 * negative
    for moved, side in ((Op.TRANSLATE_X, width), (Op.TRANSLATE_Y, height)):
        magnitude = np.where(op == moved, recipe.whole(magnitude * side), magnitude)
    magnitude = np.where(op == Op.POSTERIZE, np.floor(magnitude), magnitude)
    magnitude = np.where(op == Op.SOLARIZE, np.ceil(magnitude), magnitude)
    return torch.from_numpy(op), torch.from_numpy(magnitude)


def draw_box(recipe: Recipe, n: int, *, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Cutout boxes with their centre anywhere in the image, clipped by its border."""
    low, high = recipe.cutout
    sides = np.array([height, width])
    share, *centre = torch.rand(3, n, generator=generator, dtype=torch.float64).numpy()
    extent = ((low + (high - low) * share[:, None]) * sides).astype(np.int64)
    first = np.floor(np.stack(centre, 1) * sides - extent / 2).astype(np.int64)
    return torch.from_numpy(np.concatenate((np.maximum(first, 0), np.minimum(first + extent, sides)), 1))
