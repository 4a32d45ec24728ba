"""Who of a race runs on further seeds and label splits, beside the base and the paper's config.

A run on one pair is one sample of the noise that a seed and a label split make, and the best of many is the
luckiest of them. So the best configs go on to the next pair, and the best half of those to the one after. All
that are compared have run on the same pairs. A config leaves the race once it is behind the base on the pairs
that both have run, or once a paired test shows that it is worse than the leader (irace: López-Ibáñez et al.
2016).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from cbe.spec import StudyConfig
from cbe.spec.terms import Pair
from cbe.store.rows import Row, pair_of
from cbe.store.states import OPEN
from cbe.study.assignment import Assignment

WORSE = 0.05  # the error rate of one test against the leader


def promotions(study: StudyConfig, rows: Iterable[Row]) -> list[Assignment]:
    """The runs on further pairs that are wanted now, in their order; no new config will come.

    A pair waits until all runs on those before it have ended. The base and the paper's config go first.
    """
    search = [row for row in rows if row["role"] == "search" and row["config_id"]]
    begun = {(row["config_id"], *pair_of(row)) for row in search}
    one_of = {row["config_id"]: row for row in search}
    one_of |= {row["config_id"]: row for row in search if row["preset"]}
    fixed = [config_id for config_id, row in one_of.items() if row["preset"]]
    wanted: list[tuple[Row, Pair]] = []
    for level in range(1, len(study.pairs)):
        pair, before = study.pairs[level], study.pairs[:level]
        if wanted or has_not_ended(search, before) or not (chosen := survivors(study, search, level)):
            break
        wanted += [(one_of[key], pair) for key in (*fixed, *chosen) if (key, *pair) not in begun]
    return [Assignment("", "search", pair, json.loads(row["params"]), row["preset"]) for row, pair in wanted]


def survivors(study: StudyConfig, search: Sequence[Row], level: int) -> list[str]:
    """The configs that have run on the first `level` pairs and go on to the next, the best first."""
    pairs, sign = study.pairs[:level], 1 if study.objectives[0].direction == "minimize" else -1
    fixed = {row["config_id"]: row["preset"] for row in search if row["preset"]}
    runs = {
        config_id: [sign * found[pair] for pair in pairs]
        for config_id, found in runs_by_config(search).items()
        if found.keys() >= set(pairs)
    }
    of_base = next(
        (fmean(own) for config_id, own in runs.items() if fixed.get(config_id) == "base"), math.inf
    )
    ahead = {key: own for key, own in runs.items() if key not in fixed and fmean(own) < of_base}
    ranked = sorted(ahead, key=lambda key: (fmean(ahead[key]), key))[: study.survivors(level)]
    return [key for key in ranked if not is_worse(ahead[key], ahead[ranked[0]])]


def is_worse(values: Sequence[float], leader: Sequence[float]) -> bool:
    """Whether a paired one-sided t-test shows that a config is worse than the leader; lower is better."""
    from scipy.special import stdtr

    differences = [own - best for own, best in zip(values, leader, strict=True)]
    if len(differences) < 2 or fmean(differences) <= 0:
        return False
    spread = stdev(differences) / math.sqrt(len(differences))
    return not spread or bool(stdtr(len(differences) - 1, -fmean(differences) / spread) < WORSE)


def runs_by_config(rows: Iterable[Row]) -> dict[str, dict[Pair, float]]:
    """The objective of each config on each pair that it was trained to the end on."""
    found: dict[str, dict[Pair, float]] = {}
    for row in rows:
        if row["state"] == "completed" and math.isfinite(row["objective"]):
            found.setdefault(row["config_id"], {})[pair_of(row)] = row["objective"]
    return found


def has_not_ended(search: Iterable[Row], pairs: Sequence[Pair]) -> bool:
    """Whether a run on one of these pairs has not ended."""
    return any(row["state"] in OPEN and pair_of(row) in pairs for row in search)
