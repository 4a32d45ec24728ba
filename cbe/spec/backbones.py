"""The registry of backbones: what can be asked of one by its name alone, without torch and without weights.

An extension is one file in `cbe/nn/backbones` and one entry of `BACKBONES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Backbone:
    builder: str  # module:attribute, called with the Network section, the image channels and the numbers
    features: int  # C_F, of each image or of each of its places
    numbers: tuple[int, ...] = ()  # of its name
    fewest_parameters: int = 0  # a lower bound: exported weights that are smaller are not read
    sizes: range | None = None  # height and width it takes, in pixels; None: any
    channels: tuple[int, ...] = (1, 3)  # image channels it takes
    # mean and deviation, by channel, of the pixels in 0..1 that it was pretrained on;
    # None: of the training images
    normalisation: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def image_problem(
        self, channels: int | None = None, height: int | None = None, width: int | None = None
    ) -> str | None:
        """What is wrong with images of a shape, as far as the shape is known."""
        if channels is not None and channels not in self.channels:
            wanted = " or ".join(map(str, self.channels))
            return f"it takes images of {wanted} channels, not {channels}; set data.channels"
        for side in (height, width):
            if side is not None and self.sizes is not None and side not in self.sizes:
                wanted = f"{self.sizes[0]} to {self.sizes[-1]} pixels in steps of {self.sizes.step}"
                return f"it takes images with sides of {wanted}, not {side}; set data.size"
        return None


@dataclass(frozen=True)
class Family:
    """Backbones whose names follow one pattern."""

    pattern: str  # its groups are whole numbers
    describe: Callable[..., Backbone | None]  # by these numbers; None for numbers that do not go together
    rule: str  # which numbers do


def wide_resnet(depth: int, width: int) -> Backbone | None:
    if not 10 <= depth <= 1000 or (depth - 4) % 6 or not 1 <= width <= 64:
        return None
    blocks = (depth - 4) // 2
    return Backbone(
        "cbe.nn.backbones.wrn:WideResNet",
        features=64 * width,
        numbers=(depth, width),
        fewest_parameters=blocks * 2 * 9 * 16 * 16,  # as if every block were as narrow as the first
    )


BACKBONES = {
    "wrn-DEPTH-WIDTH": Family(
        r"wrn-(\d+)-(\d+)", wide_resnet, "depth 6n+4 from 10 to 1000 and width 1 to 64, as wrn-28-2"
    ),
}


def backbone_of(name: str) -> Backbone:
    """The backbone of a name.

    >>> backbone_of("wrn-28-2").features
    128
    """
    for family in BACKBONES.values():
        if match := re.fullmatch(family.pattern, name):
            found = family.describe(*map(int, match.groups()))
            if found is not None:
                return found
    known = "; or ".join(f"{form}, {family.rule}" for form, family in BACKBONES.items())
    raise ValueError(f"a network is {known}")
