"""What a config finds in its data: counts, and what a user should know before a model is trained on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from cbe.data.cache import open_pool
from cbe.data.dataset import Dataset, open_dataset
from cbe.data.images import Pool, Stats
from cbe.spec import TrainConfig
from cbe.spec.registry import SOURCES, load

FEW_LABELS = 4  # a class; the least that the paper trains on
_LISTED = 5  # classes whose names are told
_MEANS = 3  # how often the steps must hold the span of a running mean
_UNSEEN = Stats((0.0,), (1.0,))


@dataclass(frozen=True)
class Facts:
    """What training sees of a data set."""

    name: str
    classes: tuple[str, ...]
    labeled: int
    unlabeled: int
    validation: int
    test: int | None
    fewest: int  # labels of a class
    most: int
    shape: tuple[int, int, int] | None  # channels, height, width; None where no image was decoded
    split: str  # its digest
    warnings: tuple[str, ...]

    @property
    def sentence(self) -> str:
        test = "no test set" if self.test is None else f"{self.test:,} test"
        named = f" ({', '.join(self.classes)})" if len(self.classes) <= _LISTED else ""
        shape = f", {'×'.join(map(str, self.shape))}" if self.shape else ""
        return (
            f"{self.name}: {self.labeled:,} labeled, {self.unlabeled:,} unlabeled, "
            f"{self.validation:,} validation, {test}; {len(self.classes)} "
            f"class{'es' * (len(self.classes) != 1)}{named}{shape}; split {self.split}"
        )

    def lines(self) -> list[str]:
        """The counts in one line, and each warning in one of its own."""
        return [self.sentence, *self.warnings]

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence}


def facts_of(data: Dataset, config: TrainConfig, *, decoded: bool = True) -> Facts:
    """What there is to say of a data set that a config is trained on."""
    counts = np.bincount(data.labeled.labels, minlength=len(data.classes))
    fewest, most = int(counts.min()), int(counts.max())
    return Facts(
        name=data.name,
        classes=data.classes,
        labeled=len(data.labeled),
        unlabeled=len(data.unlabeled),
        validation=len(data.validation),
        test=len(data.test) if data.test else None,
        fewest=fewest,
        most=most,
        shape=data.labeled.shape[1:] if decoded else None,
        split=data.split.digest,
        warnings=tuple(_warnings(data, config, fewest, most)),
    )


def look(config: TrainConfig, progress: Callable[[str], None] | None = None) -> Facts | None:
    """The facts of a config's data, by names and labels alone where the source can tell them.

    None where the images must be downloaded first.
    """
    source = import_module(load(SOURCES, config.data.source).__module__)
    outline: Callable[..., Pool] | None = getattr(source, "outline", None)
    if outline is not None:
        seen = open_dataset(config.data, pool=(outline(config.data), _UNSEEN))
        return facts_of(seen, config, decoded=False)
    if hasattr(source, "files") and not source.files(config.data):
        return None
    return facts_of(open_dataset(config.data, pool=open_pool(config.data, progress)), config)


def _warnings(data: Dataset, config: TrainConfig, fewest: int, most: int) -> Iterator[str]:
    if fewest != most:
        yield f"Classes have {fewest} to {most} labels each."
    if fewest < FEW_LABELS:
        yield (
            f"{fewest} label{'s' * (fewest != 1)} a class {'is' if fewest == 1 else 'are'} few: results will "
            "vary a lot between label splits. Raise data.labels if you can."
        )
    count = len(data.validation)
    if count < 10 * len(data.classes):
        yield (
            f"The validation error moves in steps of {100 / count:.2f} % ({count} validation "
            f"image{'s' * (count != 1)}). Raise data.validation if you can."
        )
    yield from _slow_means(config)


def _slow_means(config: TrainConfig) -> Iterator[str]:
    """Says so where the evaluated weights or statistics will still be mostly the initial ones."""
    steps, ema, statistics = config.training.steps, config.training.ema, config.model.bn_momentum
    if steps * min(1 - ema, statistics) < _MEANS - 1e-9:
        yield (
            f"{steps:,} step{'s' * (steps != 1)} {'is' if steps == 1 else 'are'} few for training.ema {ema} "
            f"and model.bn_momentum {statistics}: the evaluated model will lag behind the trained one. "
            f"{_longer_or_faster(steps)}"
        )


def _longer_or_faster(steps: int) -> str:
    """What to set; the EMA and statistics of a short run, so that they see most of it."""
    share = math.ceil(100 * _MEANS / steps) / 100
    if share > 0.2:
        return "Raise training.steps."
    return f"Raise training.steps, or set them to {min(0.98, 1 - share):g} and {max(0.05, share):g}."
