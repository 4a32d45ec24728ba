"""What a config is known by: its id, and its values as columns of a table."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cbe.spec.changes import FREE
from cbe.spec.conditions import applies
from cbe.spec.search import KEYS, values_of
from cbe.spec.train import TrainConfig

SEEDS = ("training.seed", "data.label_split")  # what makes a trial of a config


def config_id(resolved: TrainConfig) -> str:
    """The same for all trials of a config, on whatever seed, split and machine."""
    same = {key: value for key, value in values_of(resolved).items() if key not in FREE and key not in SEEDS}
    text = json.dumps(same, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def columns(resolved: TrainConfig) -> dict[str, Any]:
    """The config's values by column; None where a key means nothing in this config."""
    values, types = values_of(resolved), column_types()
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = _column(key)
        if name in types:
            found[name] = _cast[types[name]](value) if value is not None and applies(key, values) else None
    listed = resolved.data.label_indices
    if listed is not None:  # they take the place of a number: the same number of others is another task
        digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:8]
        found["data_labels"] = f"{len(listed)} listed ({digest})"
    return found


@cache
def column_types() -> dict[str, str]:
    """Every column and its type: int64, float64, string or bool. Seeds and lists of indices are none."""
    return {_column(key): kind for key in KEYS if key not in SEEDS and (kind := _type(KEYS[key])) is not None}


_cast = {"int64": int, "float64": float, "string": str, "bool": bool}


def _column(key: str) -> str:
    return key.replace(".", "_")


def _type(annotation: Any) -> str | None:
    """The narrowest type that holds all an annotation allows; None where it is no scalar."""
    kinds = _kinds(annotation) - {type(None)}
    for kind, name in ((str, "string"), (float, "float64"), (int, "int64"), (bool, "bool")):
        if kind in kinds and kinds <= {str, float, int, bool}:
            return name
    return None


def _kinds(annotation: Any) -> set[Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return set().union(*(_kinds(each) for each in inner))
    if origin is Annotated:
        return _kinds(inner[0])
    if origin is Literal:
        return {type(each) for each in inner}
    return {origin or annotation}
