"""Where pixels come from: the weak view's shift, RandAugment's affine maps, and cutout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cbe.data.augment.draws import WeakDraw
from cbe.data.augment.transfer import Floats, to_device

_ONE = 1 << 16  # Pillow's nearest sampling counts in 1/65536 of a pixel; so do we, and agree to the pixel
GREY = 127


def shift_into(out: Tensor, images: Tensor, draw: WeakDraw) -> None:
    """Writes the weak view of `images` to `out`.

    A shifted row is a window of the row with its mirrored margins, so whole rows are copied rather than
    pixels. Flipped samples are put last, to be flipped in one go; the index of rows puts them back.
    """
    n, channels, height, width = images.shape
    if n == 0:
        return
    margin = width // 8
    flip = draw.flip.numpy()
    order = np.argsort(flip, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(n)
    plain = n - int(flip.sum())

    source = to_device(order, images.device)
    wide = images.new_empty(n, channels, height, width + 2 * margin)
    end = margin + width
    wide[:plain, ..., margin:end] = images.index_select(0, source[:plain])
    wide[plain:, ..., margin:end] = images.index_select(0, source[plain:]).flip(3)
    for distance in range(1, margin + 1):  # column by column is twice as fast as flipping a narrow slice
        wide[..., margin - distance] = wide[..., margin + distance]
        wide[..., end - 1 + distance] = wide[..., end - 1 - distance]

    row = (height - 1) - np.abs((height - 1) - np.abs(np.arange(height) + draw.dy.numpy()[:, None]))
    start = (place[:, None] * (channels * height) + row) * wide.shape[3] + (margin + draw.dx.numpy())[:, None]
    plane = torch.arange(channels, device=images.device)[:, None] * (height * wide.shape[3])
    starts = to_device(start, images.device)[:, None, :] + plane
    windows = wide.as_strided((wide.numel() - width + 1, width), (1, 1))
    torch.index_select(windows, 0, starts.view(-1), out=out.view(-1, width))


def _matrices(sizes: Sequence[int], magnitude: Floats, height: int, width: int) -> NDArray[np.int32]:
    """Pillow's affine coefficients [K, 6], from output to input pixels, in 1/65536 of a pixel."""
    n, turns = len(magnitude), sizes[0]
    a = np.zeros((n, 6))
    a[:, 0] = a[:, 4] = 1
    # The one coefficient that a shear along x or y, or a translation along x or y, sets.
    a[np.arange(turns, n), np.repeat((1, 3, 2, 5), sizes[1:])] = magnitude[turns:]
    angle = np.radians(magnitude[:turns])
    cos, sin = np.cos(angle), -np.sin(angle)
    y, x = height / 2, width / 2
    a[:turns] = np.stack((cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y), 1)
    a[:, 2::3] += (a[:, 0::3] + a[:, 1::3]) / 2  # pixels are sampled at their centres
    return np.floor(a * _ONE + 0.5).astype(np.int32)


def warp(images: Tensor, sizes: Sequence[int], magnitude: Floats) -> Tensor:
    """Rotates, shears and translates with nearest sampling and black outside."""
    n, channels, height, width = images.shape
    matrices = _matrices(sizes, magnitude, height, width)
    # A black border of one pixel stands for everything outside: clamping replaces a test of every pixel.
    matrices[:, 2::3] += _ONE
    framed = images.new_zeros(n, channels, height + 2, width + 2)
    framed[:, :, 1:-1, 1:-1] = images
    a, b, c, d, e, f = to_device(matrices, images.device)[:, :, None].unbind(1)
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device)
    column = ((a * x + c)[:, None, :] + (b * y)[:, :, None]).bitwise_right_shift_(16).clamp_(0, width + 1)
    row = ((d * x + f)[:, None, :] + (e * y)[:, :, None]).bitwise_right_shift_(16).clamp_(0, height + 1)
    source = column.add_(row, alpha=width + 2).long().view(n, 1, -1).expand(-1, channels, -1)
    return framed.flatten(2).gather(2, source).view_as(images)


def cut_(images: Tensor, box: Tensor) -> Tensor:
    """Fills each image's box with grey, in place."""
    height, width = images.shape[2:]
    top, left, bottom, right = box.numpy()[:, :, None].swapaxes(0, 1)
    y, x = np.arange(height), np.arange(width)
    rows = to_device(((y >= top) & (y < bottom)).view(np.uint8), images.device)
    columns = to_device(((x >= left) & (x < right)).view(np.uint8), images.device)
    inside = rows[:, None, :, None] * columns[:, None, None, :]
    # Clamping to [127, 127] inside and [0, 255] outside is one vectorised pass; a broadcast mask is not.
    return torch.clamp(images, inside * GREY, 255 - inside * (255 - GREY), out=images)
