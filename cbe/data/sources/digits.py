"""The 8×8 digits that come with scikit-learn: 1,797 grey images, for a first run without network."""

from __future__ import annotations

import numpy as np

from cbe.data.images import ImageSet, Pool
from cbe.data.sources.decode import conform
from cbe.spec import Data

_TEST_PER_CLASS = 36  # a fifth of the images
_TEST_SEED = 0  # the test images are the same for every split


def load(config: Data) -> Pool:
    from sklearn.datasets import load_digits

    bundled = load_digits()
    pixels = np.rint(bundled.images * (255 / 16)).astype(np.uint8)[:, None]
    images, labels = conform(pixels, config), bundled.target.astype(np.int64)
    rng = np.random.Generator(np.random.PCG64(_TEST_SEED))
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[rng.permutation(np.flatnonzero(labels == label))[:_TEST_PER_CLASS]] = True
    return Pool(
        train=ImageSet(images[~is_test], labels[~is_test]),
        unlabeled=None,
        test=ImageSet(images[is_test], labels[is_test]),
        classes=tuple(str(label) for label in range(10)),
        flip=False,
    )
