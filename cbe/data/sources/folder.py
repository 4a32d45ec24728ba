"""A folder of image files: `labeled/<class>/*`, `unlabeled/*` and `test/<class>/*`; or `<class>/*` alone.

Classes are the folder names in sorted order. Folders are searched to the bottom; hidden files, `__MACOSX` and
files that are no images by their name are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cbe.data.cache import Stamp
from cbe.data.images import UNKNOWN, Images, ImageSet, Labels, Pool, blank, mirrors
from cbe.data.sources.decode import AT_ONCE, Decoder, same_channels
from cbe.errors import DataError
from cbe.spec import Data

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
PARTS = ("labeled", "unlabeled", "train", "training", "val", "valid", "validation", "test")  # no classes
LAYOUT = (
    "wanted labeled/<class>/*, with unlabeled/* and test/<class>/* beside it if there are such images, "
    "or only <class>/* of two or more classes"
)

Found = list[tuple[Path, int]]  # image files with their labels


def load(config: Data) -> Pool:
    folder = _folder(config)
    sets, classes = find(folder)
    decoder = Decoder(config)
    decoded = {name: _decode(decoder, found) for name, found in sets.items()}
    alike = dict(zip(decoded, same_channels(list(decoded.values())), strict=True))
    return _pool({name: ImageSet(images, _labels(sets[name])) for name, images in alike.items()}, classes)


def outline(config: Data) -> Pool:
    """All images by their names, undecoded."""
    sets, classes = find(_folder(config))
    return _pool({name: blank(_labels(found)) for name, found in sets.items()}, classes)


def _pool(made: dict[str, ImageSet], classes: tuple[str, ...]) -> Pool:
    return Pool(made["labeled"], made.get("unlabeled"), made.get("test"), classes, mirrors(classes))


def _labels(found: Found) -> Labels:
    return np.array([label for _, label in found], dtype=np.int64)


def files(config: Data) -> list[Stamp]:
    folder = _folder(config)
    sets, _ = find(folder)
    stamps = []
    for path, _ in (item for found in sets.values() for item in found):
        try:
            about = path.stat()
        except OSError as error:  # a link to nothing, say
            raise DataError(
                f"{path}: cannot be read ({error.strerror}); wanted an image; replace or remove it"
            ) from error
        stamps.append((str(path.relative_to(folder)), about.st_size, about.st_mtime_ns))
    return stamps


def _folder(config: Data) -> Path:
    folder = Path(config.path or "").expanduser()
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"data.path: {folder} {problem}; {LAYOUT}; correct the path")
    return folder


def find(folder: Path) -> tuple[dict[str, Found], tuple[str, ...]]:
    """The image files of each set, which has at least one, and the classes."""
    labeled = folder / "labeled"
    if not labeled.is_dir() and _is_plain(folder):
        labeled = folder
    if not labeled.is_dir():
        there = ", ".join(sorted(os.listdir(folder))[:10]) or "nothing"
        raise DataError(f"{folder}: has {there} but no folder labeled; {LAYOUT}; make it")
    classes = _classes(labeled)
    sets = {
        "labeled": _of_classes(labeled, classes),
        "unlabeled": [(path, UNKNOWN) for path in _images(folder / "unlabeled")],
        "test": _of_classes(folder / "test", classes),
    }
    if not sets["labeled"]:
        kinds = " ".join(SUFFIXES)
        raise DataError(f"{labeled}: no image in it; {LAYOUT}; put images there ({kinds})")
    if not sets["unlabeled"] and any(path.is_file() for path in (folder / "unlabeled").rglob("[!.]*")):
        kinds = " ".join(SUFFIXES)
        raise DataError(
            f"{folder / 'unlabeled'}: files, but no image among them; wanted {kinds}; convert them"
        )
    return {name: found for name, found in sets.items() if found}, classes


def _is_plain(folder: Path) -> bool:
    """Whether all there is are folders of classes, two or more, each with an image in it."""
    entries = [entry for entry in sorted(folder.iterdir()) if not _ignored(entry.name)]
    folders = [entry for entry in entries if entry.is_dir()]
    parts = any(entry.name.lower() in PARTS for entry in folders)
    loose = any(_is_image(entry) for entry in entries)
    return len(folders) > 1 and not parts and not loose and all(next(_images(each), None) for each in folders)


def _classes(folder: Path) -> tuple[str, ...]:
    """The names of the class folders; an image beside them would be lost unseen, so it is an error."""
    names = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_dir() and not _ignored(entry.name):
            names.append(entry.name)
        elif _is_image(entry):
            raise DataError(f"{entry}: lies in no class folder; {LAYOUT}; move or remove it")
    return tuple(names)


def _of_classes(folder: Path, classes: tuple[str, ...]) -> Found:
    strange = [name for name in _classes(folder) if name not in classes]
    if strange:
        raise DataError(
            f"{folder / strange[0]}: no class of that name in labeled; wanted one of {', '.join(classes)}; "
            "rename or remove it"
        )
    return [(path, label) for label, name in enumerate(classes) for path in _images(folder / name)]


def _images(folder: Path) -> Iterator[Path]:
    """All image files below a folder, sorted; links are followed, but no folder is entered twice."""
    seen: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        about = os.stat(place)
        if (about.st_dev, about.st_ino) in seen:
            folders.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        folders[:] = sorted(name for name in folders if not _ignored(name))
        yield from (path for name in sorted(names) if _is_image(path := Path(place, name)))


def _ignored(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not _ignored(path.name) and not path.is_dir()


def _decode(decoder: Decoder, found: Found) -> Images:
    items = [(str(path), path) for path, _ in found]
    return decoder.decode((items[at : at + AT_ONCE] for at in range(0, len(items), AT_ONCE)), len(items))
