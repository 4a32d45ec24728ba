"""Augmentation on the device, drawn for each sample: weak views, RandAugment and cutout.

One batch costs a few milliseconds: samples that drew the same kind of operation are computed together, and no
step waits for the device. Every operation equals Pillow's.
"""

from cbe.data.augment.augmenter import Augmenter, normalize
from cbe.data.augment.draws import RECIPES, Op, Recipe, StrongDraw, WeakDraw

__all__ = ["RECIPES", "Augmenter", "Op", "Recipe", "StrongDraw", "WeakDraw", "normalize"]
