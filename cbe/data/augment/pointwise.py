"""Operations that map each grey level by itself: Pillow's ImageOps, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cbe.data.augment.transfer import Floats, to_device


def posterize(images: Tensor, sizes: Sequence[int], magnitude: Floats) -> Tensor:
    """Keeps the highest `magnitude` bits."""
    mask = (256 - 2 ** (8 - magnitude)).astype(np.uint8)
    return images & to_device(mask, images.device)[:, None, None, None]


def solarize(images: Tensor, sizes: Sequence[int], magnitude: Floats) -> Tensor:
    """Inverts the levels from the threshold up."""
    threshold = to_device(np.ceil(magnitude).astype(np.int16), images.device)[:, None, None, None]
    # 255 - x is x ^ 255, and 255 is what the true of a comparison becomes when negated in eight bits.
    return (images >= threshold).view(torch.uint8).neg_().bitwise_xor_(images)


def stretch(images: Tensor, sizes: Sequence[int], magnitude: Floats) -> Tensor:
    """Autocontrast and equalize: one table of 256 levels for each sample and channel, one gather."""
    autocontrasted, _ = sizes
    level = images.flatten(2)
    index = level.long()
    high = level.amax(2, keepdim=True)
    tables = level.new_empty(*level.shape[:2], 256)
    if autocontrasted:
        some = slice(autocontrasted)
        tables[some] = _autocontrast(level[some].amin(2, keepdim=True), high[some])
    if autocontrasted < len(images):
        rest = slice(autocontrasted, None)
        tables[rest] = _equalize(index[rest], high[rest])
    return tables.gather(2, index).view_as(images)


def _autocontrast(low: Tensor, high: Tensor) -> Tensor:
    levels = torch.arange(256, dtype=torch.uint8, device=low.device)
    low, span = low.double(), (high - low).double()
    # In float64 and in this order, as Pillow does; `255 / span` would be 255·(1/span) in torch.
    scale = torch.full_like(span, 255) / span.clamp(min=1)
    table = (levels * scale - low * scale).clamp_(0, 255).to(torch.uint8)
    return torch.where(span > 0, table, levels)


def _equalize(index: Tensor, high: Tensor) -> Tensor:
    one = torch.ones(1, dtype=torch.int32, device=index.device)
    histogram = torch.zeros(*index.shape[:2], 256, dtype=torch.int32, device=index.device)
    histogram.scatter_add_(2, index, one.expand_as(index))
    brightest = histogram.gather(2, high.long())
    step = (index.shape[2] - brightest) // 255
    before = histogram.cumsum(2, dtype=torch.int32).sub_(histogram).add_(step // 2)
    levels = torch.arange(256, dtype=torch.uint8, device=index.device)
    table = (before // step.clamp(min=1)).clamp_(max=255).to(torch.uint8)
    return torch.where(step > 0, table, levels)
