"""A data set as training uses it: a source's images with a split applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from cbe.data.cache import open_pool
from cbe.data.images import UNKNOWN, ImageSet, Pool, Stats, joined
from cbe.data.split import Split, draw
from cbe.spec import Data


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str
    classes: tuple[str, ...]
    flip: bool  # whether the weak view may mirror an image
    labeled: ImageSet
    unlabeled: ImageSet  # labels are ground truth where it exists, for metrics only; -1 otherwise
    validation: ImageSet
    test: ImageSet | None
    mean: tuple[float, ...]  # per channel of all training images in 0..1, so the same for every split
    std: tuple[float, ...]  # never 0
    split: Split


def open_dataset(
    config: Data,
    *,
    progress: Callable[[str], None] | None = None,
    pool: tuple[Pool, Stats] | None = None,
) -> Dataset:
    """Loads the images a config names, unless the caller has them from `open_pool`, and draws its split.

    >>> digits = open_dataset(Data(labels=40))
    >>> digits.labeled.shape, len(digits.classes)
    ((40, 1, 8, 8), 10)
    """
    images, stats = pool or open_pool(config, progress)
    split = draw(images, config)
    labeled = images.train.take(split.labeled)
    return Dataset(
        name=PurePath(config.path.partition("?")[0]).stem if config.path else config.source,
        classes=images.classes,
        flip=images.flip if config.flip is None else config.flip,
        labeled=labeled,
        unlabeled=_unlabeled(images, split, labeled if config.labeled_in_unlabeled else None),
        validation=images.train.take(split.validation),
        test=images.test,
        mean=stats.mean,
        std=stats.std,
        split=split,
    )


def _unlabeled(pool: Pool, split: Split, labeled: ImageSet | None) -> ImageSet:
    own = pool.unlabeled
    if own is None:
        return pool.train.take(split.unlabeled)
    if labeled is None:
        return own
    # Truth of the labeled images alone would pass for the accuracy of pseudo-labels in general.
    truth = labeled.labels if (own.labels != UNKNOWN).any() else np.full_like(labeled.labels, UNKNOWN)
    return joined(own, replace(labeled, labels=truth))
