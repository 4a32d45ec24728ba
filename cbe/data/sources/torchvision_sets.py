"""Well-known sets through torchvision, downloaded into `data.root` when they are not there.

The modules that need torch are imported on use: a start from the cache does not wait for them.
"""

from __future__ import annotations

import fcntl
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import numpy as np

from cbe.data.cache import Stamp
from cbe.data.images import ImageSet, Pool
from cbe.data.sources.decode import conform
from cbe.errors import DataError
from cbe.spec import Data

# What torchvision leaves in the root; the cache is tied to these.
FILES = {
    "fashion_mnist": [
        f"FashionMNIST/raw/{part}-ubyte"
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    ],
    "cifar10": [
        f"cifar-10-batches-py/{name}" for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")
    ],
    "cifar100": ["cifar-100-python/train", "cifar-100-python/test"],
    "svhn": ["train_32x32.mat", "test_32x32.mat"],
    "stl10": [
        f"stl10_binary/{name}.bin" for name in ("train_X", "train_y", "unlabeled_X", "test_X", "test_y")
    ],
}


def fashion_mnist(config: Data) -> Pool:
    from cbe.data.vision import datasets

    train, test = (_open(config, datasets.FashionMNIST, train=part) for part in (True, False))
    return Pool(
        train=_set(config, train.data.numpy()[:, None], train.targets),
        unlabeled=None,
        test=_set(config, test.data.numpy()[:, None], test.targets),
        classes=tuple(train.classes),
        flip=True,
    )


def cifar10(config: Data) -> Pool:
    from cbe.data.vision import datasets

    return _cifar(config, datasets.CIFAR10)


def cifar100(config: Data) -> Pool:
    from cbe.data.vision import datasets

    return _cifar(config, datasets.CIFAR100)


def svhn(config: Data) -> Pool:
    from cbe.data.vision import datasets

    train, test = (_open(config, datasets.SVHN, split=part) for part in ("train", "test"))
    return Pool(
        train=_set(config, train.data, train.labels),
        unlabeled=None,
        test=_set(config, test.data, test.labels),
        classes=tuple(str(digit) for digit in range(10)),
        flip=False,
    )


def stl10(config: Data) -> Pool:
    from cbe.data.vision import datasets

    train, unlabeled, test = (
        _open(config, datasets.STL10, split=part) for part in ("train", "unlabeled", "test")
    )
    return Pool(
        train=_set(config, train.data, train.labels),
        unlabeled=_set(config, unlabeled.data, unlabeled.labels),
        test=_set(config, test.data, test.labels),
        classes=tuple(train.classes),
        flip=True,
    )


def files(config: Data) -> list[Stamp]:
    """The stamps of the files, or none unless all are there."""
    root = Path(config.root).expanduser()
    paths = [root / name for name in FILES[config.source]]
    if not all(path.is_file() for path in paths):
        return []
    abouts = [path.stat() for path in paths]
    return [(path.name, about.st_size, about.st_mtime_ns) for path, about in zip(paths, abouts, strict=True)]


def _cifar(config: Data, build: Callable[..., Any]) -> Pool:
    train, test = (_open(config, build, train=part) for part in (True, False))
    return Pool(
        train=_set(config, train.data.transpose(0, 3, 1, 2), train.targets),
        unlabeled=None,
        test=_set(config, test.data.transpose(0, 3, 1, 2), test.targets),
        classes=tuple(train.classes),
        flip=True,
    )


def _set(config: Data, images: Any, labels: Any) -> ImageSet:
    return ImageSet(conform(images, config), np.asarray(labels).astype(np.int64))


def _open(config: Data, build: Callable[..., Any], **which: Any) -> Any:
    root = Path(config.root).expanduser()
    try:
        root.mkdir(parents=True, exist_ok=True)
        # torchvision's bar goes to stderr always; in a log it would be thousands of lines.
        quiet = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
        with _alone(root / f".{config.source}.lock"), quiet:
            return build(root, download=True, **which)
    except Exception as error:  # network, disk, archives, checksums: each has an error type of its own
        reason = str(error).strip().replace("\n", " ") or type(error).__name__
        raise DataError(
            f"data.root: {config.source} could not be downloaded into or read from {root} ({reason}); "
            f"wanted {', '.join(FILES[config.source])} there; copy them there, remove damaged ones, "
            "or use source parquet with a path"
        ) from error


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time: torchvision writes to the final name, where another reads half a file."""
    with ExitStack() as held:
        with suppress(OSError):  # nothing can be downloaded into a root that cannot be written either
            fcntl.flock(held.enter_context(lock.open("w")), fcntl.LOCK_EX)
        yield
