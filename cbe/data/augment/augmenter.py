"""Weak and strong views of a batch, every sample with its own draw, computed together on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cbe.data.augment.blends import blend
from cbe.data.augment.draws import RECIPES, Op, StrongDraw, WeakDraw, draw_box, draw_ops, draw_weak
from cbe.data.augment.geometry import cut_, shift_into, warp
from cbe.data.augment.pointwise import posterize, solarize, stretch
from cbe.data.augment.transfer import Floats, to_device
from cbe.errors import DataError

# Takes images [K, C, H, W] sorted by operation, how many there are of each, and their magnitudes on the host.
Group = Callable[[Tensor, Sequence[int], Floats], Tensor]

# Operations computed together, in the order of Op; the identity comes last and has nothing to compute.
GROUPS: tuple[tuple[tuple[Op, ...], Group], ...] = (
    ((Op.ROTATE, Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y), warp),
    ((Op.AUTOCONTRAST, Op.EQUALIZE), stretch),
    ((Op.POSTERIZE,), posterize),
    ((Op.SOLARIZE,), solarize),
    ((Op.BRIGHTNESS, Op.CONTRAST, Op.COLOR, Op.SHARPNESS), blend),
)


class Augmenter:
    """Draws on the host from `generator` and computes on the device of the images, never waiting for it.

    >>> generator = torch.Generator().manual_seed(0)
    >>> augmenter = Augmenter("usb", flip=False, height=8, width=8, generator=generator)
    >>> images = torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
    >>> augmenter.strong(images, augmenter.draw_strong(5)).shape
    torch.Size([5, 1, 8, 8])
    """

    def __init__(
        self,
        recipe: Literal["fixmatch", "usb"],
        *,
        flip: bool,
        height: int,
        width: int,
        generator: torch.Generator,
    ) -> None:
        self.recipe = RECIPES[recipe]
        self.flip = flip
        self.height = height
        self.width = width
        self.generator = generator

    def draw_weak(self, n: int) -> WeakDraw:
        return draw_weak(n, flip=self.flip, height=self.height, width=self.width, generator=self.generator)

    def draw_strong(self, n: int) -> StrongDraw:
        weak = self.draw_weak(n)
        op, magnitude = draw_ops(
            self.recipe, n, height=self.height, width=self.width, generator=self.generator
        )
        box = draw_box(self.recipe, n, height=self.height, width=self.width, generator=self.generator)
        return StrongDraw(weak, op, magnitude, box)

    def weak(self, images: Tensor, draw: WeakDraw) -> Tensor:
        """Flips and shifts each image by its draw, mirroring at the border."""
        self._check(images, len(draw))
        out = torch.empty_like(images, memory_format=torch.contiguous_format)
        shift_into(out, images, draw)
        return out

    def strong(self, images: Tensor, draw: StrongDraw) -> Tensor:
        """The weak view, then each image's own operations one after the other, then cutout."""
        self._check(images, len(draw))
        n = len(images)
        # Every result is appended to a pool, and the host keeps where each sample's newest version lies: one
        # ordered copy at the end instead of a scattered write after each group of operations.
        ops, magnitudes = draw.op.numpy(), draw.magnitude.numpy()
        pool = images.new_empty(n + int(np.count_nonzero(ops != Op.IDENTITY)), *images.shape[1:])
        shift_into(pool[:n], images, draw.weak)
        place, end = np.arange(n), n
        for layer in range(ops.shape[1]):
            order = np.argsort(ops[:, layer], kind="stable")
            counts = np.bincount(ops[:, layer], minlength=len(Op)).tolist()
            magnitude = magnitudes[order, layer]
            source = to_device(place[order], images.device)
            first = 0
            for members, compute in GROUPS:
                sizes = [counts[op] for op in members]
                last = first + sum(sizes)
                if last > first:
                    chosen = pool.index_select(0, source[first:last])
                    pool[end + first : end + last] = compute(chosen, sizes, magnitude[first:last])
                first = last
            place[order[:first]] = np.arange(end, end + first)
            end += first
        return cut_(pool.index_select(0, to_device(place, images.device)), draw.box)

    def _check(self, images: Tensor, drawn: int) -> None:
        wanted = (drawn, images.shape[1], self.height, self.width) if images.ndim == 4 else None
        if images.dtype != torch.uint8 or images.shape != wanted:
            raise DataError(
                f"augmentation was drawn for {drawn} images of {self.height}×{self.width} in uint8, "
                f"[N, C, H, W], but got {list(images.shape)} in {images.dtype}"
            )


def normalize(images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Tensor:
    """(x/255 - mean)/std of each channel, in float32, as one multiplication and one addition."""
    m, s = (
        value.to(images.device, torch.float32, non_blocking=True)
        if isinstance(value, Tensor)
        else to_device(np.asarray(value, np.float32), images.device)
        for value in (mean, std)
    )
    scale, offset = 1 / (255 * s), -m / s
    return images.float().mul_(scale[:, None, None]).add_(offset[:, None, None])
