"""The best configs, the paper's and the base once more, on seeds and label splits the search never saw."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite

from cbe.configs import grouped, in_order, is_ahead
from cbe.spec import StudyConfig
from cbe.spec.terms import Pair
from cbe.store.rows import Row, pair_of
from cbe.study.assignment import Assignment
from cbe.verdicts import compare


def winners(study: StudyConfig, rows: Iterable[Row]) -> list[Row]:
    """A trial of each of the best configs that were trained to the end, the best first, without presets.

    A config that is not ahead of the base on the pairs that both have run is none of them.
    """
    configs = grouped((row for row in rows if row["role"] == "search"), study)
    base = next((config for config in configs if config.preset == "base"), None)
    direction = study.objectives[0].direction
    ahead = {config for config in configs if not config.preset and is_ahead(config, base, direction)}
    ranked = [config for config in in_order(configs, "search", direction) if config in ahead]
    return [config.completed("search")[0] for config in ranked[: study.confirm.configs]]


def runs_of(rows: Iterable[Row]) -> dict[Pair, float]:
    """The objective of each pair that was trained to the end."""
    return {
        pair_of(row): row["objective"]
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
    done = {(row["config_id"], *pair_of(row)) for row in confirmed}
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
