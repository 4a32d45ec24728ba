"""Image files, decoded as a trial's own were, and what a model says of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cbe.data.images import Images
from cbe.data.sources.decode import Decoder
from cbe.data.sources.folder import SUFFIXES
from cbe.errors import DataError
from cbe.models.about import Image
from cbe.models.model import Model
from cbe.spec import Data


@dataclass(frozen=True)
class Answer:
    """What a model says of one image."""

    file: str
    label: str
    probability: float  # mean over heads
    confidence: float  # the same, calibrated
    disagreement: float | None  # share of the pairs of heads that differ; None for one head
    probabilities: dict[str, float]  # of all classes

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Unreadable:
    file: str
    reason: str  # names the file too

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def predict_files(
    model: Model, paths: Iterable[Path], batch: int | None = None
) -> Iterator[Answer | Unreadable]:
    """Predicts files, and folders to their bottom, in order; one that is no image costs no other."""
    size = batch or model.about.config.training.eval_batch
    names: list[Path] = []
    pixels: list[Images] = []
    for path in found(paths):
        try:
            pixels.append(decode(path, model.about.image))
            names.append(path)
        except DataError as error:
            yield Unreadable(str(path), str(error))
        if len(names) == size:
            yield from _answers(model, names, pixels, size)
            names, pixels = [], []
    if names:
        yield from _answers(model, names, pixels, size)


def found(paths: Iterable[Path]) -> Iterator[Path]:
    """Files as they are given, whatever their names; of folders the images, sorted, hidden ones left out."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        empty = True
        for place, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not _hidden(name))
            for name in sorted(names):
                if name.lower().endswith(SUFFIXES) and not _hidden(name):
                    empty = False
                    yield Path(place, name)
        if empty:
            yield path  # told as unreadable below: nobody should take silence for an answer


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def decode(path: Path, image: Image) -> Images:
    """An image file in the shape that a model takes, [1, C, H, W]."""
    if path.is_dir():
        raise DataError(f"{path}: no image in it; wanted {' '.join(SUFFIXES)}; check the path")
    if not path.is_file():
        problem = "is no file" if path.exists() else "there is no such file"
        raise DataError(f"{path}: {problem}; wanted an image or a folder of images; check the path")
    square = image.height if image.height == image.width else None
    decoder = Decoder(Data(size=square, channels=image.channels))
    pixels = decoder.decode([[(str(path), path)]], 1)
    height, width = pixels.shape[2:]
    if (height, width) != (image.height, image.width):  # images that are not square are never resized
        raise DataError(
            f"{path}: is {width}×{height}; the model takes {image.width}×{image.height}; resize it"
        )
    return pixels


def _answers(model: Model, names: Sequence[Path], pixels: Sequence[Images], batch: int) -> Iterator[Answer]:
    said = model.predict(np.concatenate(pixels), batch)
    classes = model.about.classes
    for index, path in enumerate(names):
        yield Answer(
            file=str(path),
            label=classes[int(said.labels[index])],
            probability=said.probability[index].item(),
            confidence=said.confidence[index].item(),
            disagreement=None if said.disagreement is None else said.disagreement[index].item(),
            probabilities=dict(zip(classes, said.probs[index].tolist(), strict=True)),
        )
