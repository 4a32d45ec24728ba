"""Operations that blend an image with a poorer one: Pillow's ImageEnhance, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cbe.data.augment.transfer import Floats, to_device


def blend(images: Tensor, sizes: Sequence[int], magnitude: Floats) -> Tensor:
    """Brightness, contrast, colour and sharpness: poor + factor·(image - poor), cut off to eight bits."""
    brightness, contrast, color, sharpness = sizes
    pixels = images.float()
    poor = torch.empty_like(pixels)
    black, flat, grey, smooth = torch.split(poor, list(sizes))
    black.zero_()
    if contrast + color:
        luma = _luma(images[brightness : len(images) - sharpness])
        flat.copy_(_mean(luma[:contrast]))
        grey.copy_(luma[contrast:])
    if sharpness:
        _smooth_into(smooth, pixels[len(images) - sharpness :])
    factor = to_device(magnitude.astype(np.float32), images.device)[:, None, None, None]
    # Three roundings in float32, as in Pillow; a fused multiply-add would differ by a level here and there.
    return pixels.sub_(poor).mul_(factor).add_(poor).to(torch.uint8)


def _luma(images: Tensor) -> Tensor:
    """Pillow's conversion to grey, [K, 1, H, W]."""
    if images.shape[1] == 1:
        return images.int()
    red, green, blue = images.int()[:, :, None].unbind(1)
    weighted = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(1 << 15).bitwise_right_shift_(16)


def _mean(luma: Tensor) -> Tensor:
    """Mean level of each image, rounded to whole levels, [K, 1, 1, 1]."""
    pixels = luma.shape[2] * luma.shape[3]
    return (luma.sum((2, 3), keepdim=True) * 2 + pixels) // (2 * pixels)


def _smooth_into(out: Tensor, pixels: Tensor) -> None:
    """Pillow's SMOOTH: (1 1 1, 1 5 1, 1 1 1)/13, rounded, with the border as it was."""
    out.copy_(pixels)
    rows = pixels[:, :, :-2] + pixels[:, :, 1:-1] + pixels[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    total.add_(pixels[:, :, 1:-1, 1:-1], alpha=4)
    # Sums are whole and thirteenths never fall on a half, so the rounding of the division cannot matter.
    out[:, :, 1:-1, 1:-1] = total.mul_(1 / 13).add_(0.5).floor_()
