"""What a config is called wherever a person reads of it.

The paper's config and the base are `paper` and `base`. A searched config has the name of the first trial that
ran it, as `t0007`: short, the same in every table and figure, and `cbe show STUDY/t0007` shows its values.
Programs tell configs apart by `config_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def trial_order(row: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Sorts trials: those of the search first, and t9999 before t10000."""
    return row["role"] != "search", len(row["trial"]), row["trial"]


def config_names(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The name of every config of a study's trials, by config_id.

    >>> config_names([{"config_id": "4d8", "preset": None, "trial": "t0007", "role": "search"}])
    {'4d8': 't0007'}
    """
    names: dict[str, str] = {}
    presets: dict[str, str] = {}
    for row in sorted(rows, key=trial_order):
        if row["config_id"]:
            names.setdefault(row["config_id"], row["trial"])
            if row["preset"]:
                presets.setdefault(row["config_id"], row["preset"])
    return names | presets
