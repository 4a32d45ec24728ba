"""What the sampler hears of earlier studies: their trials as history, their best config as prior.

Levels differ between studies: one trains longer, another has a harder label split. Differences to the base on
the same seed and label split are comparable. So a trial of an earlier study is told as

    its value − the base's value in that study on the same pair + reference,

where the reference is the mean of the base over the searches of all earlier studies: a guess of what the base
will have here. A trial whose pair has no completed run of the base is not told at all. A trial that was
stopped early is told only where its study trains for as many steps as this one, since the sampler ranks such
trials by their steps. What is told belongs to no trial of this study: it has no name, and costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from statistics import fmean
from typing import Any

from optuna.trial import FrozenTrial

from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.parameters import Prior
from cbe.spec.search import applicable, values_of
from cbe.spec.terms import Pair
from cbe.ssl import resolve
from cbe.store.folder import StudyFolder
from cbe.store.history import is_in_space, remembered
from cbe.store.rows import Row, pair_of
from cbe.store.states import FINAL
from cbe.study.search.earlier_studies import Earlier, priors

Values = Sequence[float]

FROM = "from"  # the attribute of a trial that names the one of an earlier study
LEARNED_FILE = "learned.json"
_KEPT = ("role", "preset", "state", "seed", "label_split", "step", "error_class")


@dataclass(frozen=True)
class Transfer:
    """What a search takes from earlier studies."""

    studies: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()  # their trials, moved to the level that is expected here
    priors: Mapping[str, Any] = field(default_factory=dict)  # where the best value is expected, by dotted key

    def to_plain(self) -> dict[str, Any]:
        """All but the trials themselves."""
        return {"studies": list(self.studies), "trials": len(self.rows), "priors": dict(self.priors)}

    def told(self, study: StudyConfig) -> list[FrozenTrial]:
        """The trials that lie in a study's search space, as its sampler hears of them."""
        found = []
        for row in self.rows:
            trial = remembered(study, row, for_sampler=True)
            if trial is not None and trial.state.is_finished():
                trial.user_attrs = {FROM: row["trial"]}
                found.append(trial)
        return found


def learned(study: StudyConfig, folder: StudyFolder, find: Callable[[], Sequence[Earlier]]) -> Transfer:
    """What a study has learned at its first start, kept in its folder: it must not change on a resume."""
    if not study.search_from:
        return Transfer()
    content = folder.read(LEARNED_FILE)
    if content is None:
        found = transfer(study, find())
        folder.write(LEARNED_FILE, json.dumps(asdict(found), indent=1).encode())
        return found
    plain = json.loads(content)
    return Transfer(tuple(plain["studies"]), tuple(plain["rows"]), plain["priors"])


def transfer(study: StudyConfig, found: Sequence[Earlier]) -> Transfer:
    """The history and the priors that these studies give to another."""
    names = tuple(each.name for each in found)
    bases = {each.name: _base(each) for each in found}
    levels = [values for base in bases.values() for values in base.values()]
    if not levels:
        return Transfer(names, (), priors(study, found))
    reference = [fmean(column) for column in zip(*levels, strict=True)]
    rows = [row for each in found for row in _moved(study, each, bases[each.name], reference)]
    return Transfer(names, tuple(rows), priors(study, found))


def with_priors(study: StudyConfig, given: Mapping[str, Any]) -> StudyConfig:
    """A study whose parameters have these priors."""
    search = dict(study.search)
    for key, value in given.items():
        search[key] = search[key].model_copy(update={"prior": Prior(at=value, confidence="medium")})
    return study.model_copy(update={"search": search})


def _base(each: Earlier) -> dict[Pair, Values]:
    """The base's values in a study's search, by pair."""
    return {
        pair_of(row): row["values"]
        for row in each.rows
        if row["role"] == "search" and row["preset"] == "base" and _is_measured(row)
    }


def _is_measured(row: Row) -> bool:
    return row["state"] == "completed" and bool(row["values"]) and all(map(isfinite, row["values"]))


def _moved(
    study: StudyConfig, each: Earlier, base: Mapping[Pair, Values], reference: Values
) -> Iterator[Row]:
    for row in each.rows:
        pair = pair_of(row)
        early = row["state"] == "pruned"
        if row["role"] != "search" or pair not in base or (early and row["steps"] != study.training.steps):
            continue
        point = _point(study, each.study, TrainConfig.model_validate_json(row["config"]))
        if point is None:
            continue
        shift = [level - value for level, value in zip(reference, base[pair], strict=True)]
        moved = {
            **{key: row[key] for key in _KEPT},
            "trial": f"{each.name}/{row['trial']}",
            "params": json.dumps(point),
            "values": row["values"] and [a + b for a, b in zip(row["values"], shift, strict=True)],
            "objective": None if row["objective"] is None else row["objective"] + shift[0],
        }
        if row["state"] in FINAL:
            yield moved


def _point(study: StudyConfig, other: StudyConfig, config: TrainConfig) -> dict[str, Any] | None:
    """A config in the terms of this search; None where it lies outside.

    What the other study searches and this one does not must have this study's value.
    """
    values = values_of(config)
    point = {key: values[key] for key, p in study.search.items() if applicable(key, p, values)}
    if not point or not is_in_space(study, point):
        return None
    try:
        here = values_of(resolve(study.train_config(point, 0, 0)))
    except ConfigError:
        return None
    same = all(values[key] == here[key] for key in other.search if key not in study.search)
    return point if same else None
