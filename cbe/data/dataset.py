"""A data set as training uses it: a source's images with a split applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from cbe.data.cache import open_pool
from cbe.data.images import UNKNOWN, ImageSet, Pool
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


def open_dataset(config: Data, *, progress: Callable[[str], None] | None = None) -> Dataset:
    """Loads the images a config names, from the cache if they are there, and draws its split.

    >>> digits = open_dataset(Data(labels=40))
    >>> len(digits.labeled), digits.labeled.images.shape[1:], len(digits.classes)
    (40, (1, 8, 8), 10)
    """
    pool, stats = open_pool(config, progress or (lambda line: None))
    split = draw(pool, config)
    labeled = pool.train.take(split.labeled)
    return Dataset(
        name=PurePath(config.path.partition("?")[0]).stem if config.path else config.source,
        classes=pool.classes,
        flip=pool.flip if config.flip is None else config.flip,
        labeled=labeled,
        unlabeled=_unlabeled(pool, split, labeled if config.labeled_in_unlabeled else None),
        validation=pool.train.take(split.validation),
        test=pool.test,
        mean=stats.mean,
        std=stats.std,
        split=split,
    )


def _unlabeled(pool: Pool, split: Split, labeled: ImageSet | None) -> ImageSet:
    own = pool.unlabeled
    if own is None:
        return pool.train.take(split.unlabeled)
    if labeled is None:
        return own  # all of them, and still a memory map
    # Truth of the labeled images alone would pass for the accuracy of pseudo-labels in general.
    truth = labeled.labels if (own.labels != UNKNOWN).any() else np.full_like(labeled.labels, UNKNOWN)
    return ImageSet(np.concatenate([own.images, labeled.images]), np.concatenate([own.labels, truth]))
