"""What tells one set of images from another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cbe.data import Pool, digest
from cbe.data.images import ImageSet, stats


def pool(seed: int = 0) -> Pool:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (3000, 1, 8, 8), np.uint8)
    train = ImageSet(images, np.arange(3000) % 3)
    return Pool(train, None, train.take(np.arange(100)), ("a", "b", "c"), False)


def of(found: Pool) -> str:
    return digest(found, stats(found.train.images))


def test_the_same_images_have_the_same_digest() -> None:
    assert of(pool()) == of(pool()) and len(of(pool())) == 16


@pytest.mark.parametrize("what", ["one pixel", "a label", "a class", "the order", "no test set"])
def test_other_images_have_another_digest(what: str) -> None:
    found = pool()
    images, labels = found.train.images.copy(), found.train.labels.copy()
    if what == "one pixel":
        images[1, 0, 0, 0] ^= 1  # of an image that is not looked at as a whole
    elif what == "a label":
        labels[1] = 2
    elif what == "the order":
        images = images[::-1].copy()
    classes = ("a", "b", "d") if what == "a class" else found.classes
    test = None if what == "no test set" else found.test
    assert of(replace(found, train=ImageSet(images, labels), classes=classes, test=test)) != of(found)
