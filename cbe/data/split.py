"""Which labels may be seen, which images are kept for validation and which are trained on without label.

The split has a seed of its own, so that trials with different training seeds can share one split. Each class
is put into a random order; validation takes from its front and labels from its back. So the validation
images stay the same when the number of labels changes, the labels stay the same when the number of validation
images changes, and a split with more labels contains those with fewer.

When the number of classes does not divide what is asked for, the remainder goes one each to classes chosen by
the split seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cbe.data.images import Pool
from cbe.errors import DataError
from cbe.spec import Data

Indices = npt.NDArray[np.int64]
_LISTS = ("labeled", "validation", "unlabeled")


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted indices into the train images; `unlabeled` into the source's own unlabeled if it has any."""

    labeled: Indices
    validation: Indices
    unlabeled: Indices
    own_unlabeled: bool

    @property
    def digest(self) -> str:
        """16 hex digits that are the same for the same split only."""
        content = hashlib.sha256(b"own" if self.own_unlabeled else b"train")
        for indices in (self.labeled, self.validation, self.unlabeled):
            content.update(len(indices).to_bytes(8, "little"))
            content.update(indices.astype("<i8").tobytes())
        return content.hexdigest()[:16]

    def to_plain(self) -> dict[str, Any]:
        """The split as JSON can hold it."""
        lists = {name: getattr(self, name).tolist() for name in _LISTS}
        return {**lists, "own_unlabeled": self.own_unlabeled, "digest": self.digest}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Split:
        """The split that `to_plain` wrote; DataError when it has changed since."""
        try:
            labeled, validation, unlabeled = (np.array(plain[name], dtype=np.int64) for name in _LISTS)
            split = cls(labeled, validation, unlabeled, bool(plain["own_unlabeled"]))
            written = plain["digest"]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"stored split: not readable ({error!r}); wanted {', '.join(_LISTS)}, "
                "own_unlabeled and digest; draw it again from its label_split"
            ) from error
        if split.digest != written:
            raise DataError(
                f"stored split: its indices have digest {split.digest}, but {written} is written "
                "beside them; draw it again from its label_split"
            )
        return split


def draw(pool: Pool, config: Data) -> Split:
    """Draws the split that a config asks for; the same config and pool give the same split everywhere."""
    rng = np.random.Generator(np.random.PCG64(config.label_split))
    orders = [rng.permutation(members) for members in _by_class(pool)]
    validation_ranks, label_ranks = rng.permutation(len(orders)), rng.permutation(len(orders))
    quota = _quota(_validation_count(pool, config), validation_ranks)
    if config.label_indices is not None:
        labeled = _explicit(pool, config.label_indices)
        orders = [order[~np.isin(order, labeled)] for order in orders]
        _enough(pool, orders, quota, np.zeros_like(quota))
    elif config.labels == "all":
        _enough(pool, orders, quota, np.ones_like(quota))
        labeled = _joined(order[count:] for order, count in zip(orders, quota, strict=True))
    else:
        wanted = _label_quota(pool, config.labels, label_ranks)
        _enough(pool, orders, quota, wanted)
        labeled = _joined(order[len(order) - count :] for order, count in zip(orders, wanted, strict=True))
    validation = _joined(order[:count] for order, count in zip(orders, quota, strict=True))
    return Split(
        labeled, validation, _unlabeled(pool, config, labeled, validation), pool.unlabeled is not None
    )


def _by_class(pool: Pool) -> list[Indices]:
    members = [np.flatnonzero(pool.train.labels == label) for label in range(len(pool.classes))]
    empty = [name for name, found in zip(pool.classes, members, strict=True) if not len(found)]
    if empty:
        raise DataError(
            f"training images: class {_listed(empty)} has no image; wanted at least one of each of the "
            f"{len(pool.classes)} classes; add images or remove the class"
        )
    return members


def _validation_count(pool: Pool, config: Data) -> int:
    asked = config.validation
    count = max(1, round(asked * len(pool.train))) if isinstance(asked, float) else asked
    if count >= len(pool.train):
        raise DataError(
            f"data.validation: {asked} asks for {count} of {len(pool.train)} training images, which leaves "
            "none to train on; give a smaller number or a share"
        )
    return count


def _quota(count: int, ranks: Indices) -> Indices:
    """How many of each class: all the same, and one more for the classes that rank first."""
    share, remainder = divmod(count, len(ranks))
    return share + (ranks < remainder).astype(np.int64)


def _label_quota(pool: Pool, labels: int, ranks: Indices) -> Indices:
    if labels < len(pool.classes):
        raise DataError(
            f"data.labels: {labels} label{'s do' if labels != 1 else ' does'} not reach all "
            f"{len(pool.classes)} classes; give at least {len(pool.classes)}"
        )
    return _quota(labels, ranks)


def _enough(pool: Pool, orders: Sequence[Indices], validation: Indices, labels: Indices) -> None:
    for name, order, held, wanted in zip(pool.classes, orders, validation, labels, strict=True):
        if held + wanted > len(order):
            raise DataError(
                f"training images: class {name} has {len(order)} to draw from, but {held} for validation and "
                f"{wanted} with label are wanted; lower data.labels or data.validation, or add images"
            )


def _explicit(pool: Pool, given: Sequence[int]) -> Indices:
    where, count = "data.label_indices", len(pool.train)
    try:
        indices = np.array(given, dtype=np.int64)
    except OverflowError as error:
        raise DataError(f"{where}: {max(given)} is out of range; wanted 0 to {count - 1}") from error
    outside = indices[(indices < 0) | (indices >= count)]
    if len(outside):
        raise DataError(
            f"{where}: {_listed(outside.tolist())} out of range; wanted 0 to {count - 1}, as there are "
            f"{count} training images; correct or remove"
        )
    values, counts = np.unique(indices, return_counts=True)
    if len(values) < len(indices):
        twice = values[counts > 1].tolist()
        raise DataError(
            f"{where}: {_listed(twice)} given more than once; wanted each once; remove the others"
        )
    seen = pool.train.labels[values]
    missing = [name for label, name in enumerate(pool.classes) if label not in seen]
    if missing:
        raise DataError(
            f"{where}: none of the {len(values)} images is of class {_listed(missing)}; wanted at least one "
            "of each class; add an index of each"
        )
    return values


def _unlabeled(pool: Pool, config: Data, labeled: Indices, validation: Indices) -> Indices:
    if pool.unlabeled is not None:
        return np.arange(len(pool.unlabeled), dtype=np.int64)
    keep = np.ones(len(pool.train), dtype=bool)
    keep[validation] = False
    if not config.labeled_in_unlabeled:
        keep[labeled] = False
    if not keep.any():
        raise DataError(
            f"data.labels: all {len(labeled)} images that are not for validation have a label, which leaves "
            "no unlabeled image; set data.labeled_in_unlabeled to true, or give fewer labels"
        )
    return np.flatnonzero(keep)


def _joined(parts: Iterable[Indices]) -> Indices:
    return np.sort(np.concatenate(list(parts)))


def _listed(values: Sequence[object]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")
