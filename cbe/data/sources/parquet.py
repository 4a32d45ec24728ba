"""Parquet files in the layout of Hugging Face: encoded images in one column, integer labels in another.

A path names one file, all of it training images, or a folder with `train*.parquet` and, if there are such
images, `test*.parquet` and `unlabeled*.parquet`. It is local or in a bucket, as `cbe.clouds` has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from cbe.clouds import cloud_of, open_address, reason
from cbe.data.cache import Stamp
from cbe.data.images import UNKNOWN, Images, ImageSet, Labels, Pool, blank, mirrors
from cbe.data.sources.columns import Columns, find_columns
from cbe.data.sources.decode import AT_ONCE, Decoder, Item, same_channels
from cbe.errors import DataError, InputError, UnreachableData
from cbe.spec import Data

SETS = ("train", "unlabeled", "test")
LAYOUT = "wanted a .parquet file, or a folder with train*.parquet and perhaps test* and unlabeled*.parquet"


@dataclass(frozen=True)
class _Part:
    """One parquet file of a set."""

    name: str
    path: str
    rows: int
    columns: Columns


def load(config: Data) -> Pool:
    filesystem, parts = _parts(config)
    decoder = Decoder(config)
    read = {name: _read(filesystem, found, decoder) for name, found in parts.items()}
    alike = same_channels([images for images, _ in read.values()])
    return _pool(
        parts, {name: ImageSet(images, read[name][1]) for name, images in zip(read, alike, strict=True)}
    )


def outline(config: Data) -> Pool:
    """All images by their labels, undecoded; of a file only the column of labels is read."""
    filesystem, parts = _parts(config)
    return _pool(
        parts,
        {
            name: blank(np.concatenate([_labels_alone(filesystem, part) for part in found]))
            for name, found in parts.items()
        },
    )


def _parts(config: Data) -> tuple[fs.FileSystem, dict[str, list[_Part]]]:
    filesystem, sets = _find(config)
    return filesystem, {
        name: [_part(filesystem, info, labeled=name != "unlabeled") for info in infos]
        for name, infos in sets.items()
    }


def _pool(parts: dict[str, list[_Part]], made: dict[str, ImageSet]) -> Pool:
    named = next((part.columns.classes for part in parts["train"] if part.columns.classes), ())
    classes = named or _numbered(made["train"].labels)
    for name, found in made.items():
        _check_labels(name, parts[name], found.labels, len(classes))
    # Classes that are only numbers say nothing about mirroring; names do.
    return Pool(made["train"], made.get("unlabeled"), made.get("test"), classes, not named or mirrors(named))


def _numbered(labels: Labels) -> tuple[str, ...]:
    # No more classes than images: a column of some other numbers must not make a billion of them.
    return tuple(str(label) for label in range(min(max(int(labels.max()), 0) + 1, len(labels))))


def files(config: Data) -> list[Stamp]:
    _, sets = _find(config)
    return [(info.path, info.size, info.mtime_ns or 0) for infos in sets.values() for info in infos]


def _find(config: Data) -> tuple[fs.FileSystem, dict[str, list[Any]]]:
    """The files of each set, which has at least one."""
    given = config.path or ""
    filesystem, path = _filesystem(given)
    try:
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise DataError(f"data.path: {given} does not exist; {LAYOUT}; {_check(given)}")
        if info.type == fs.FileType.File:
            return filesystem, {"train": [info]}
        entries = filesystem.get_file_info(fs.FileSelector(path))
    except (pa.ArrowException, OSError) as error:
        unread = UnreachableData if "://" in given else DataError
        raise unread(
            f"data.path: {given} cannot be read ({reason(error)}); {LAYOUT}; {_check(given)}"
        ) from error
    found = sorted((entry for entry in entries if entry.is_file), key=lambda entry: entry.base_name)
    sets = {
        name: [
            entry
            for entry in found
            if entry.base_name.startswith(name) and entry.base_name.endswith(".parquet")
        ]
        for name in SETS
    }
    if not sets["train"]:
        there = ", ".join(entry.base_name for entry in found[:10]) or "no file"
        raise DataError(f"data.path: {given} has {there} but no train*.parquet; {LAYOUT}; rename or correct")
    return filesystem, {name: infos for name, infos in sets.items() if infos}


def _filesystem(given: str) -> tuple[fs.FileSystem, str]:
    if "://" not in given:
        return fs.LocalFileSystem(), str(Path(given).expanduser().resolve())
    try:
        address = open_address(given, "data.path")
    except InputError as error:
        # What Arrow said about a well-formed address stands behind the error.
        raise (UnreachableData if error.__cause__ else DataError)(str(error)) from error
    return address.filesystem, address.path


def _check(given: str) -> str:
    cloud = cloud_of(given)
    return cloud.hint if cloud else "check the path"


def _part(filesystem: fs.FileSystem, info: Any, *, labeled: bool) -> _Part:
    try:
        with filesystem.open_input_file(info.path) as file:
            opened = pq.ParquetFile(file)
            columns = find_columns(info.path, opened.schema_arrow, labeled=labeled)
            rows = opened.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{info.path}: cannot be read ({error}); wanted a parquet file; replace it"
        ) from error
    if not rows:
        raise DataError(f"{info.path}: has no rows; wanted images; remove the file")
    return _Part(info.base_name, info.path, rows, columns)


def _read(filesystem: fs.FileSystem, parts: list[_Part], decoder: Decoder) -> tuple[Images, Labels]:
    labels: list[Labels] = []

    def chunks() -> Iterator[list[Item]]:
        for part in parts:
            yield from _rows(filesystem, part, labels)

    images = decoder.decode(chunks(), sum(part.rows for part in parts))
    return images, np.concatenate(labels)


def _rows(filesystem: fs.FileSystem, part: _Part, labels: list[Labels]) -> Iterator[list[Item]]:
    """Encoded images, some at a time; their labels are put into the list on the way."""
    image, label = part.columns.image, part.columns.label
    at = 0
    try:
        with filesystem.open_input_file(part.path) as file:
            batches = pq.ParquetFile(file, pre_buffer=True).iter_batches(
                AT_ONCE, columns=[image] if label is None else [image, label]
            )
            for batch in batches:
                labels.append(_labels(batch, label))
                column = batch.column(image)
                if pa.types.is_struct(column.type):
                    column = column.flatten()[column.type.get_field_index("bytes")]
                yield [
                    (f"{part.path} row {at + row}", _present(part, at + row, content))
                    for row, content in enumerate(column.to_pylist())
                ]
                at += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part, error) from error


def _labels_alone(filesystem: fs.FileSystem, part: _Part) -> Labels:
    label = part.columns.label
    if label is None:
        return np.full(part.rows, UNKNOWN, dtype=np.int64)
    try:
        with filesystem.open_input_file(part.path) as file:
            batches = pq.ParquetFile(file).iter_batches(columns=[label])
            return np.concatenate([_labels(batch, label) for batch in batches])
    except (pa.ArrowException, OSError) as error:
        raise _damaged(part, error) from error


def _damaged(part: _Part, error: Exception) -> DataError:
    return DataError(f"{part.path}: cannot be read ({error}); wanted a whole file; copy it again")


def _present(part: _Part, row: int, content: bytes | None) -> bytes:
    if content is None:
        raise DataError(
            f"{part.path} row {row}: no bytes in column {part.columns.image}; "
            "wanted the encoded image, not only its path; write the file again with the images embedded"
        )
    return content


def _labels(batch: pa.RecordBatch, label: str | None) -> Labels:
    if label is None:
        return np.full(len(batch), UNKNOWN, dtype=np.int64)
    known = batch.column(label).cast(pa.int64()).fill_null(UNKNOWN)
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.int64)


def _check_labels(name: str, parts: list[_Part], labels: Labels, classes: int) -> None:
    """Refuses labels of no class; unlabeled images may have any, but then it counts as unknown."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if name == "unlabeled":
        labels[wrong] = UNKNOWN
        return
    if not len(wrong):
        return
    row = int(wrong[0])
    for part in parts:
        if row < part.rows:
            break
        row -= part.rows
    raise DataError(
        f"{part.path} row {row}: label {labels[wrong[0]]} in column {part.columns.label} (-1: missing); "
        f"wanted 0 to {classes - 1}; correct the labels, or put images without label into unlabeled*.parquet"
    )
