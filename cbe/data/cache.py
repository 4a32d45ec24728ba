"""Decoded images on disk, so that a second start need not decode.

An entry is a folder `<root>/.cache/<source>-<digest>/` of .npy files and one JSON file. The digest covers all
that determines its content, so that an entry never goes stale. It is written under another name and renamed,
so that a reader sees all of an entry or nothing, whichever process is killed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cbe.data.images import Images, ImageSet, Pool, Stats, stats
from cbe.spec import Data
from cbe.spec.registry import SOURCES, load

VERSION = 1  # raise it when decoding changes what comes out
SETS = ("train", "unlabeled", "test")
Stamp = tuple[str, int, int]  # a file's name, size and time of change in ns
Progress = Callable[[str], None]
_AT_ONCE = 1024
_ABANDONED_S = 24 * 3600


def open_pool(config: Data, progress: Progress | None = None) -> tuple[Pool, Stats]:
    """The images of a config's source, from the cache where possible.

    A source whose module has `files(config)`, the stamps of the files it reads, is cached; it gives none when
    they are still to be downloaded.
    """
    progress = progress or (lambda line: None)
    source = load(SOURCES, config.source)
    files = getattr(import_module(source.__module__), "files", None)
    before: list[Stamp] = files(config) if files else []
    if before and (found := _read(_entry(config, before), progress)):
        return found
    if files:
        doing = "decoding" if before else "downloading and decoding"
        progress(f"{config.path or config.source}: {doing} the images, once")
    pool: Pool = source(config)
    measured = stats(pool.train.images)
    after: list[Stamp] = files(config) if files else []
    if not after or (before and before != after):  # files that changed under the reader are not kept
        return pool, measured
    return _keep(_entry(config, after), pool, measured, progress)


def _entry(config: Data, files: list[Stamp]) -> Path:
    path = config.path
    if path and "://" not in path:
        path = str(Path(path).expanduser().resolve())
    key = [VERSION, config.source, path, config.size, config.channels, sorted(files)]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return Path(config.root).expanduser() / ".cache" / f"{config.source}-{digest}"


def _read(entry: Path, progress: Progress) -> tuple[Pool, Stats] | None:
    if not entry.is_dir():
        return None
    try:
        kept: dict[str, Any] = json.loads((entry / "pool.json").read_text())
        sets = {name: _opened(entry, name) if name in kept["sets"] else None for name in SETS}
        if sets["train"] is None:
            raise ValueError("no train images")
        pool = Pool(
            sets["train"], sets["unlabeled"], sets["test"], tuple(kept["classes"]), bool(kept["flip"])
        )
        return pool, Stats(tuple(kept["mean"]), tuple(kept["std"]))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        progress(f"{entry}: damaged ({error}); decoding again")
        _discard(entry)
        return None


def _opened(entry: Path, name: str) -> ImageSet:
    images, labels = (
        np.load(entry / f"{name}_{part}.npy", mmap_mode="r", allow_pickle=False)
        for part in ("images", "labels")
    )
    return ImageSet(images, labels)


def _keep(entry: Path, pool: Pool, measured: Stats, progress: Progress) -> tuple[Pool, Stats]:
    """Writes an entry and opens it; without it, when it cannot be written."""
    aside = entry.with_name(f".{entry.name}-{uuid.uuid4().hex}")
    try:
        aside.mkdir(parents=True)
        _write(aside, pool, measured)
        _sweep(entry)
        aside.rename(entry)  # fails when another writer was first, as its folder has files
    except OSError as error:
        if not entry.is_dir():
            progress(f"{entry}: cannot be written ({error}); going on without a cache")
            return pool, measured
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    # The pool in memory gives way to memory maps, which trials on one machine share.
    return _read(entry, progress) or (pool, measured)


def _write(folder: Path, pool: Pool, measured: Stats) -> None:
    sets = {name: found for name in SETS if (found := getattr(pool, name)) is not None}
    for name, found in sets.items():
        _save(folder / f"{name}_images.npy", found.images)
        np.save(folder / f"{name}_labels.npy", found.labels, allow_pickle=False)
    about = {"sets": list(sets), "classes": pool.classes, "flip": pool.flip, **asdict(measured)}
    (folder / "pool.json").write_text(json.dumps(about, indent=1))


def _save(path: Path, images: Images) -> None:
    # Some at a time: stl10 comes as a transposed view of 2.8 GB, which np.save writes byte by byte.
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": images.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for at in range(0, len(images), _AT_ONCE):
            file.write(np.ascontiguousarray(images[at : at + _AT_ONCE]).data)


def _discard(folder: Path) -> None:
    """Takes a folder away at once, then deletes it; readers keep the files they have open."""
    aside = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    try:
        folder.rename(aside)
    except OSError:
        return  # somebody else did, or nobody may: then it is decoded at each start
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(entry: Path) -> None:
    """Deletes what writers of this entry left that were killed long ago."""
    for left in entry.parent.glob(f".{entry.name}-*"):
        if time.time() - left.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
