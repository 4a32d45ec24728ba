"""What a source yields: arrays of images with labels, before any split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

UNKNOWN = -1  # the label of an image whose class nobody told
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with one label each: rows of an array, or of two, that may be shared and read-only.

    Sets made of another share its arrays; only `images` copies.
    """

    base: Images
    labels: Labels
    rows: Rows | None = None  # None: all of `base`
    second: Images | None = None  # its rows are counted on from those of `base`

    def __post_init__(self) -> None:
        for base in self.bases:
            shape, dtype = base.shape, base.dtype
            if len(shape) != 4 or shape[1] not in (1, 3) or dtype != np.uint8:
                raise ValueError(f"images are {dtype} {shape}; wanted uint8 [N, 1 or 3, H, W]")
            if shape[1:] != self.base.shape[1:]:
                raise ValueError(f"images are {shape[1:]} and {self.base.shape[1:]}; wanted one shape")
        count = self.base.shape[:1] if self.rows is None else self.rows.shape
        if self.labels.shape != count or self.labels.dtype != np.int64:
            raise ValueError(f"labels are {self.labels.dtype} {self.labels.shape}; wanted int64 {count}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain arrays: a memory map would be pickled byte by byte, and not handed over as shared memory.
        second = None if self.second is None else np.asarray(self.second)
        return ImageSet, (np.asarray(self.base), np.asarray(self.labels), self.rows, second)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bases(self) -> tuple[Images, ...]:
        return (self.base,) if self.second is None else (self.base, self.second)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[N, C, H, W]."""
        channels, height, width = self.base.shape[1:]
        return len(self), channels, height, width

    @property
    def images(self) -> Images:
        """The images as one array [N, C, H, W]; a copy, unless they are all of the base."""
        if self.rows is None:
            return self.base
        if self.second is None:
            return np.asarray(self.base[self.rows])
        made = np.empty(self.shape, np.uint8)
        later = self.rows >= len(self.base)
        made[~later] = self.base[self.rows[~later]]
        made[later] = self.second[self.rows[later] - len(self.base)]
        return made

    def take(self, indices: Rows) -> ImageSet:
        """Some of the images, in the order of the indices."""
        rows = indices if self.rows is None else self.rows[indices]
        return ImageSet(self.base, np.asarray(self.labels[indices]), rows, self.second)


def blank(labels: Labels) -> ImageSet:
    """Images that are still to be decoded: black, and without memory, where only labels are needed."""
    return ImageSet(np.broadcast_to(np.zeros((1, 1, 8, 8), np.uint8), (len(labels), 1, 8, 8)), labels)


def joined(first: ImageSet, second: ImageSet) -> ImageSet:
    """The images of one set and then those of another, each of one array."""
    if first.second is not None or second.second is not None:
        raise ValueError("only sets of one array each can be joined")
    rows = [np.arange(len(each)) if each.rows is None else each.rows for each in (first, second)]
    return ImageSet(
        first.base,
        np.concatenate([first.labels, second.labels]),
        np.concatenate([rows[0], len(first.base) + rows[1]]),
        second.base,
    )


@dataclass(frozen=True, eq=False)
class Pool:
    """All images of a source."""

    train: ImageSet  # the labels of all of these are known
    unlabeled: ImageSet | None  # a source's own unlabeled images; None: the train images serve
    test: ImageSet | None
    classes: tuple[str, ...]
    flip: bool  # whether a mirrored image keeps its label


@dataclass(frozen=True)
class Stats:
    """Per channel, of pixels in 0..1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]  # 1 where a channel is constant, so that dividing by it is safe


def stats(images: Images) -> Stats:
    """Mean and standard deviation of each channel.

    >>> stats(np.full((1, 1, 8, 8), 255, np.uint8))
    Stats(mean=(1.0,), std=(1.0,))
    """
    total = np.zeros(images.shape[1], np.uint64)
    squares = np.zeros_like(total)
    for at in range(0, len(images), _AT_ONCE):
        part = images[at : at + _AT_ONCE]
        # Sums of integers are exact: the result does not depend on how many images are summed at once.
        total += part.sum(axis=(0, 2, 3), dtype=np.uint64)
        squares += np.square(part, dtype=np.uint16).sum(axis=(0, 2, 3), dtype=np.uint64)
    count = images.size / images.shape[1]
    mean = total / count / 255
    std = np.sqrt(np.maximum(squares / count / 255**2 - mean**2, 0))
    return Stats(tuple(mean.tolist()), tuple(float(value) if value > 1e-6 else 1.0 for value in std))


def digest(pool: Pool, measured: Stats) -> str:
    """16 hex digits that differ for other images, labels or classes.

    They cover all labels, the statistics of all train images, and up to 1024 whole images of each set.
    """
    content = hashlib.sha256(repr((pool.classes, pool.flip, measured)).encode())
    for each in (pool.train, pool.unlabeled, pool.test):
        content.update(repr(each and each.shape).encode())
        if each is not None:
            content.update(np.ascontiguousarray(each.labels, "<i8").tobytes())
            some = np.arange(0, len(each), -(-len(each) // _AT_ONCE) or 1)
            content.update(np.ascontiguousarray(each.take(some).images).tobytes())
    return content.hexdigest()[:16]


def mirrors(classes: tuple[str, ...]) -> bool:
    """Whether a mirrored image keeps its label, as far as class names tell: digits and letters do not.

    >>> mirrors(("3", "7")), mirrors(("cat", "dog"))
    (False, True)
    """
    return not all(len(name) == 1 and name.isalnum() for name in classes)
