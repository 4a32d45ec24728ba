"""The best configs, the paper's and the base once more, on seeds and label splits the search never saw."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isfinite
from statistics import mean
from typing import Any

from cbe.spec import StudyConfig
from cbe.study.assignment import Assignment

Row = Mapping[str, Any]


def winners(study: StudyConfig, rows: Iterable[Row]) -> list[Row]:
    """A trial of each of the best configs that were trained to the end, the best first, without presets."""
    searched = [row for row in rows if row["role"] == "search"]
    fixed = {row["config_id"] for row in searched if row["preset"]}
    of_config: dict[str, list[Row]] = defaultdict(list)
    for row in searched:
        if row["state"] == "completed" and isfinite(row["objective"]) and row["config_id"] not in fixed:
            of_config[row["config_id"]].append(row)
    sign = 1 if study.objectives[0].direction == "minimize" else -1

    def merit(rows: list[Row]) -> tuple[Any, ...]:
        # Configs that some pair has stopped or failed come after those that all pairs have finished.
        return (-len(rows), sign * mean(row["objective"] for row in rows), rows[0]["trial"])

    ranked = sorted(of_config.values(), key=merit)
    return [rows[0] for rows in ranked[: study.confirm.configs]]


def confirmations(study: StudyConfig, rows: Iterable[Row], configs: Iterable[Row]) -> list[Assignment]:
    """The runs of these configs, each given by one of its trials, that the store has no row of yet."""
    rows = list(rows)
    done = {(row["config_id"], row["seed"], row["split_seed"]) for row in rows if row["role"] == "confirm"}
    distinct = {row["config_id"]: row for row in configs}
    wanted = [
        (row, pair)
        for pair in study.confirm_pairs  # all configs on one pair before the next: pairs are what is compared
        for row in distinct.values()
        if (row["config_id"], *pair) not in done
    ]
    return [Assignment("", "confirm", pair, json.loads(row["params"]), row["preset"]) for row, pair in wanted]


def presets(rows: Iterable[Row]) -> list[Row]:
    """The search's trials of the paper's config and of the base."""
    return [row for row in rows if row["role"] == "search" and row["preset"] and row["config_id"]]
