"""Earlier studies of the same store that guide a search: which they are, and what the best of them chose."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cbe.errors import ConfigError, Fault, InputError
from cbe.spec import Parameter, StudyConfig, TrainConfig
from cbe.spec.metrics import METRICS
from cbe.spec.search import applicable, default_search, values_of
from cbe.spec.suggestions import did_you_mean
from cbe.store.folder import DATA_FILE, Store, StudyFolder
from cbe.store.rows import Row
from cbe.study.confirmation import runs_of
from cbe.verdicts import Verdict, compare

_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "config", "seed", "label_split"),
    *("objective", "values", "step", "steps", "error_class"),
)
_ELSEWHERE = {"root", "label_split"}  # of a study's data: where caches are, and what its pairs say
_RANK = {"better": 0, "equivalent": 1, "undecided": 1}


@dataclass(frozen=True)
class Earlier:
    """A study that guides another."""

    folder: StudyFolder
    study: StudyConfig

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def rows(self) -> list[Row]:
        """Its trials, those that cannot be built left out."""
        found = self.folder.table("trials", _COLUMNS).to_pylist()
        return sorted((row for row in found if row["config"]), key=lambda row: row["trial"])

    @cached_property
    def best(self) -> tuple[tuple[int, float], TrainConfig] | None:
        """The confirmed config with the best verdict against the base, and what to rank it by.

        None where no config is ahead of the base.
        """
        confirmed = [row for row in self.rows if row["role"] == "confirm"]
        base = runs_of(row for row in confirmed if row["preset"] == "base")
        facts = json.loads(self.folder.read(DATA_FILE) or b"{}")
        images = facts.get(METRICS[self.study.objectives[0].metric].counted_on)
        sign = 1 if self.study.objectives[0].direction == "minimize" else -1
        found = []
        for config_id in dict.fromkeys(row["config_id"] for row in confirmed if row["preset"] != "base"):
            rows = [row for row in confirmed if row["config_id"] == config_id]
            verdict = compare(self.study, runs_of(rows), base, images)
            if verdict and _is_ahead(verdict, sign):
                rank = (_RANK[verdict.said], sign * verdict.mean)
                found.append((rank, TrainConfig.model_validate_json(rows[0]["config"])))
        return min(found, key=lambda each: each[0], default=None)


def _is_ahead(verdict: Verdict, sign: int) -> bool:
    return verdict.said in _RANK and sign * verdict.mean < 0


def find(study: StudyConfig, store: Store) -> list[Earlier]:
    """The studies that `search_from` names; for `auto`, all that are comparable.

    A comparable study has the same data, objectives and method, and searches a parameter of this study over
    common values. ConfigError names every study that cannot guide this one.
    """
    if not study.search_from:
        return []
    names = [name for name in store.names() if name != study.name]
    if study.search_from == "auto":
        found = [each for each in _readable(store, names) if _is_comparable(study, each.study)]
    else:
        unfit = [fault for name in study.search_from if (fault := _fault(study, store, name, names))]
        if unfit:
            raise ConfigError(unfit)
        found = list(_readable(store, study.search_from))
    _require_new_pairs(study, found)
    return found


def faults(study: StudyConfig, store: Store) -> tuple[Fault, ...]:
    """What is wrong with the studies of the store that are to guide this one, for who checks its file."""
    try:
        find(study, store)
    except ConfigError as error:
        return tuple(error.faults)
    return ()


def _readable(store: Store, names: Sequence[str]) -> Iterator[Earlier]:
    for name in names:
        folder = store.study(name)
        try:
            config = folder.config()
        except InputError:  # of another version, or damaged
            continue
        if config is not None:
            yield Earlier(folder, config)


def _fault(study: StudyConfig, store: Store, name: str, names: Sequence[str]) -> Fault | None:
    if name not in names:
        hint = did_you_mean(name, names) or "leave it out, or name another --store"
        return Fault("search_from", f"{store.uri} holds no study {name}", hint)
    try:
        other = store.study(name).config()
    except InputError as error:
        return Fault("search_from", f"{name} cannot be read ({error})", "leave it out")
    assert other is not None
    if differing := _differing_data(study, other):
        return Fault(
            "search_from",
            f"{name} has other data: {differing}",
            "wanted a study of the same data; leave it out",
        )
    if other.objectives != study.objectives:
        theirs, ours = (
            ", ".join(f"{each.direction} {each.metric}" for each in one.objectives) for one in (other, study)
        )
        return Fault(
            "search_from",
            f"{name} has another objective: {theirs}, here {ours}",
            "wanted the same; leave it out",
        )
    if not study.search.keys() & other.search.keys():
        return Fault(
            "search_from",
            f"{name} searches {', '.join(other.search) or 'nothing'}; none of it is searched here",
            "wanted a study with a parameter in common; leave it out",
        )
    return None


def _differing_data(study: StudyConfig, other: StudyConfig) -> str:
    ours, theirs = study.data.model_dump(), other.data.model_dump()
    keys = [key for key in ours if key not in _ELSEWHERE and ours[key] != theirs[key]]
    return ", ".join(f"data.{key} is {theirs[key]!r}, here {ours[key]!r}" for key in keys)


def _is_comparable(study: StudyConfig, other: StudyConfig) -> bool:
    common = study.search.keys() & other.search.keys()
    return (
        not _differing_data(study, other)
        and other.objectives == study.objectives
        and bool(_methods(study) & _methods(other))
        and any(study.search[key].overlaps(other.search[key]) for key in common)
    )


def _methods(study: StudyConfig) -> set[Any]:
    searched = study.search.get("method.name")
    return set(searched.listed) if searched else {study.method.name}


def _require_new_pairs(study: StudyConfig, found: Sequence[Earlier]) -> None:
    """Refuses a confirmation on seeds or label splits on which one of them has chosen what it suggests."""
    for each in found:
        for key, column, at in (("seeds", "seed", 0), ("label_splits", "label_split", 1)):
            seen = {row[column] for row in each.rows} & {pair[at] for pair in study.confirm_pairs}
            if seen:
                listed = ", ".join(map(str, sorted(seen)[:8]))
                raise ConfigError(
                    [
                        Fault(
                            f"confirm.{key}",
                            f"{each.name} has run on {listed}, and its results guide this search",
                            "give others, or leave them out",
                        )
                    ]
                )


def priors(study: StudyConfig, found: Sequence[Earlier]) -> dict[str, Any]:
    """Where to expect the best value of each parameter: at the best confirmed config of the earlier studies.

    A prior that the study file gives stays. The priors of the default search are nobody's own, and give way.
    """
    best = min((each.best for each in found if each.best), key=lambda each: each[0], default=None)
    if best is None:
        return {}
    values, default = values_of(best[1]), default_search(study.base)

    def is_open(key: str, parameter: Parameter) -> bool:
        return parameter.prior is None or (key in default and parameter.prior == default[key].prior)

    return {
        key: values[key]
        for key, parameter in study.search.items()
        if is_open(key, parameter) and applicable(key, parameter, values) and parameter.contains(values[key])
    }
