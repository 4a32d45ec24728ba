"""The best configs, the paper's and the base once more, on seeds and label splits the search never saw."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isfinite
from statistics import mean
from typing import Any

from cbe.spec import StudyConfig
from cbe.study.assignment import Assignment, Pair
from cbe.verdicts import compare

Row = Mapping[str, Any]


def winners(study: StudyConfig, rows: Iterable[Row]) -> list[Row]:
    """A trial of each of the best configs that were trained to the end, the best first, without presets.

    A config that is not ahead of the base on the pairs that both have run is none of them.
    """
    searched = [row for row in rows if row["role"] == "search"]
    fixed = {row["config_id"] for row in searched if row["preset"]}
    base = runs_of(row for row in searched if row["preset"] == "base")
    of_config: dict[str, list[Row]] = defaultdict(list)
    for row in searched:
        if row["state"] == "completed" and isfinite(row["objective"]) and row["config_id"] not in fixed:
            of_config[row["config_id"]].append(row)
    sign = 1 if study.objectives[0].direction == "minimize" else -1

    def is_ahead(rows: list[Row]) -> bool:
        runs = runs_of(rows)
        shared = runs.keys() & base.keys()
        return not shared or sign * sum(runs[pair] - base[pair] for pair in shared) < 0

    def merit(rows: list[Row]) -> tuple[Any, ...]:
        # Configs that some pair has stopped or failed come after those that all pairs have finished.
        return (-len(rows), sign * mean(row["objective"] for row in rows), rows[0]["trial"])

    ranked = sorted(filter(is_ahead, of_config.values()), key=merit)
    return [rows[0] for rows in ranked[: study.confirm.configs]]


def runs_of(rows: Iterable[Row]) -> dict[Pair, float]:
    """The objective of each pair that was trained to the end."""
    return {
        (row["seed"], row["split_seed"]): row["objective"]
        for row in rows
        if row["state"] == "completed" and isfinite(row["objective"])
    }


def confirmations(
    study: StudyConfig, rows: Iterable[Row], configs: Iterable[Row], images: int | None = None
) -> list[Assignment]:
    """The runs that these configs still need, each config given by one of its trials.

    All configs run on one pair before the next, since pairs are what is compared. A config whose verdict
    against the base is known needs no more, and the base none once all others are decided.
    """
    confirmed = [row for row in rows if row["role"] == "confirm"]
    done = {(row["config_id"], row["seed"], row["split_seed"]) for row in confirmed}
    distinct = {row["config_id"]: row for row in configs}
    base_id = next((key for key, row in distinct.items() if row["preset"] == "base"), None)
    base = runs_of(row for row in confirmed if row["config_id"] == base_id)

    def is_undecided(config_id: str) -> bool:
        runs = runs_of(row for row in confirmed if row["config_id"] == config_id)
        found = compare(study, runs, base, images)
        return found is None or found.said == "undecided"

    undecided = {key for key in distinct if key != base_id and is_undecided(key)}
    needed = {key: row for key, row in distinct.items() if key in undecided or (key == base_id and undecided)}
    wanted = [
        (row, pair)
        for pair in study.confirm_pairs
        for row in needed.values()
        if (row["config_id"], *pair) not in done
    ]
    return [Assignment("", "confirm", pair, json.loads(row["params"]), row["preset"]) for row, pair in wanted]


def presets(rows: Iterable[Row]) -> list[Row]:
    """The search's trials of the paper's config and of the base."""
    return [row for row in rows if row["role"] == "search" and row["preset"] and row["config_id"]]
