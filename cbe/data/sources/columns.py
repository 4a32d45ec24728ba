"""Which column of a parquet file holds the images, which the labels, and what the classes are called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cbe.errors import DataError

IMAGE_NAMES = ("image", "img", "images", "picture", "photo", "png", "jpg", "jpeg")
LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "category", "y")


@dataclass(frozen=True)
class Columns:
    image: str
    label: str | None
    classes: tuple[str, ...]  # none when the file does not say


def find_columns(where: str, schema: pa.Schema, *, labeled: bool) -> Columns:
    """Columns by their names, or else by being the only one of their type."""
    listed = ", ".join(f"{field.name} ({_short(field.type)})" for field in schema)
    image = _only(
        where, listed, "image", IMAGE_NAMES, [field.name for field in schema if _is_image(field.type)]
    )
    if image is None:
        raise DataError(
            f"{where}: no image column among {listed}; wanted binary or struct<bytes, path>, called "
            f"{', '.join(IMAGE_NAMES[:3])} or alone of that type; write the encoded images into one"
        )
    label = _only(
        where, listed, "label", LABEL_NAMES, [f.name for f in schema if pa.types.is_integer(f.type)]
    )
    if label is None and labeled:
        raise DataError(
            f"{where}: no label column among {listed}; wanted integers, called "
            f"{', '.join(LABEL_NAMES[:3])} or alone of that type; add it, or call the file unlabeled*.parquet"
        )
    return Columns(image, label, _class_names(schema, label))


def _only(where: str, listed: str, what: str, names: Sequence[str], fitting: Sequence[str]) -> str | None:
    likely = [name for name in fitting if name.lower() in names] or list(fitting)
    if len(likely) > 1:
        raise DataError(
            f"{where}: {', '.join(likely)} may each be the {what} column, among {listed}; wanted one; "
            f"rename it to {what}, and drop the others"
        )
    return likely[0] if likely else None


def _is_image(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _is_image(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _short(kind: pa.DataType) -> str:
    return f"struct<{', '.join(field.name for field in kind)}>" if pa.types.is_struct(kind) else str(kind)


def _class_names(schema: pa.Schema, label: str | None) -> tuple[str, ...]:
    """The names of a Hugging Face ClassLabel, which its library leaves in the schema's metadata."""
    try:
        about: Any = json.loads((schema.metadata or {})[b"huggingface"])
        feature = about["info"]["features"][label]
        return tuple(str(name) for name in feature["names"]) if feature["_type"] == "ClassLabel" else ()
    except (KeyError, TypeError, ValueError):
        return ()  # written by something else: the classes are then called by their numbers
