"""What a source yields: arrays of images with labels, before any split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

UNKNOWN = -1  # the label of an image whose class nobody told
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images [N, C, H, W] with one label each; the images may be a read-only memory map."""

    images: Images
    labels: Labels

    def __post_init__(self) -> None:
        shape, dtype = self.images.shape, self.images.dtype
        if len(shape) != 4 or shape[1] not in (1, 3) or dtype != np.uint8:
            raise ValueError(f"images are {dtype} {shape}; wanted uint8 [N, 1 or 3, H, W]")
        if self.labels.shape != shape[:1] or self.labels.dtype != np.int64:
            raise ValueError(f"labels are {self.labels.dtype} {self.labels.shape}; wanted int64 {shape[:1]}")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: npt.NDArray[np.int64]) -> ImageSet:
        """A copy of some of the images, in the order of the indices."""
        return ImageSet(np.asarray(self.images[indices]), np.asarray(self.labels[indices]))


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


def mirrors(classes: tuple[str, ...]) -> bool:
    """Whether a mirrored image keeps its label, as far as class names tell: digits and letters do not.

    >>> mirrors(("3", "7")), mirrors(("cat", "dog"))
    (False, True)
    """
    return not all(len(name) == 1 and name.isalnum() for name in classes)
