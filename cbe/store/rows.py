"""A row of a table, and what readers of `trials` ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cbe.spec.terms import Pair

Row = Mapping[str, Any]


def pair_of(row: Row) -> Pair:
    """The seed and the label split of a trial."""
    return row["seed"], row["label_split"]
