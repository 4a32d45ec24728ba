"""Two studies or two trials beside each other: what differs in their settings, and in what they found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc

from cbe.configs import grouped, is_finite
from cbe.errors import InputError
from cbe.report.best import Ranked, best, images_counted
from cbe.report.lookup import data_facts, read_study, trial_row
from cbe.report.paired import Difference, paired
from cbe.report.published import data_name
from cbe.report.wording import against, verdict
from cbe.spec import StudyConfig
from cbe.spec.changes import Difference as Change
from cbe.spec.changes import differences
from cbe.spec.metrics import METRICS, SUMMARIES, SUMMARIZED
from cbe.spec.terms import Pair, Role
from cbe.store.folder import Store, StudyFolder
from cbe.store.rows import Row
from cbe.store.states import current_trials

FIGURES = (
    *("state", "step", "steps", "objective"),
    *(f"{which}_{name}" for name in SUMMARIZED for which in SUMMARIES),
    *("wall_s", "device", "parameters", "macs", "error_class", "error_text"),
)
_ANSWER = (
    *("trial", "role", "preset", "state", "config_id", "params", "config"),
    *("seed", "label_split", "split", "objective"),
)


@dataclass(frozen=True)
class Side:
    """One of two studies."""

    study: str
    metric: str
    counts: dict[str, int]  # trials by state
    confirmed: bool
    best: Ranked | None  # None: no trial has been trained to its end
    sentence: str


@dataclass(frozen=True)
class StudyDiff:
    sides: tuple[Side, Side]
    settings: tuple[Change, ...]
    role: Role | None  # whose runs are paired
    difference: Difference | None  # the first study's best config minus the second's
    sentence: str  # what the difference says, or why there is none

    def to_plain(self) -> dict[str, Any]:
        return {"kind": "studies", **asdict(self)}


@dataclass(frozen=True)
class TrialDiff:
    trials: tuple[str, str]  # STUDY/TRIAL
    settings: tuple[Change, ...]
    metrics: tuple[str, str]  # what the objective of each is
    figures: dict[str, tuple[Any, Any]]  # by column of `trials`
    common_step: int | None  # the last that both were evaluated at
    at_common_step: tuple[float, float] | None  # validation errors there

    def to_plain(self) -> dict[str, Any]:
        return {"kind": "trials", **asdict(self)}


def diff(store: Store, one: str, other: str) -> StudyDiff | TrialDiff:
    """Compares two studies, or two trials given as STUDY/TRIAL."""
    if ("/" in one) != ("/" in other):
        study, trial = sorted((one, other), key=lambda name: "/" in name)
        raise InputError(
            f"{one}, {other}: {study} is a study and {trial} a trial; wanted two of a kind; give two "
            f"studies, or two trials, each as STUDY/TRIAL"
        )
    return _trials(store, one, other) if "/" in one else _studies(store.study(one), store.study(other))


def _studies(one: StudyFolder, other: StudyFolder) -> StudyDiff:
    studies = (read_study(one), read_study(other))
    sides = (_side(one, studies[0]), _side(other, studies[1]))
    changed = differences(studies[0].to_plain(), studies[1].to_plain())
    settings = tuple(change for change in changed if change.key != "name")
    role, found, reason = _paired((one, other), studies, sides)
    sentence = reason if found is None else _compared(sides, found, role, studies[0])
    return StudyDiff(sides, settings, role if found else None, found, sentence)


def _side(folder: StudyFolder, study: StudyConfig) -> Side:
    states = current_trials(folder, ["trial", "state"])["state"].to_pylist()
    metric = study.objectives[0].metric
    try:
        answer = best(folder, 1, study)
    except InputError as error:  # nothing to rank yet, which is an answer too
        return Side(study.name, metric, dict(Counter(states)), False, None, str(error))
    first = answer.ranked[0]
    return Side(study.name, metric, answer.counts, answer.confirmed, first, answer.sentence)


def _paired(
    folders: tuple[StudyFolder, StudyFolder],
    studies: tuple[StudyConfig, StudyConfig],
    sides: tuple[Side, Side],
) -> tuple[Role, Difference | None, str]:
    """The paired difference of the two best configs, or why there is none."""
    reason = _incomparable(studies, sides)
    if reason:
        return "search", None, f"Not compared: {reason}."
    rows = [_rows(folder, side) for folder, side in zip(folders, sides, strict=True)]
    if not _same_splits(studies, rows):
        return "search", None, "Not compared: other data (the same seeds gave other label splits)."
    metric = sides[0].metric
    images = images_counted(metric, studies[0], rows[0], data_facts(folders[0]))
    shared = 0
    for role in _ROLES:
        mine, others = (_runs(each, study, role) for each, study in zip(rows, studies, strict=True))
        found = paired(mine, others, METRICS[metric].unit.largest, images)
        if found:
            return role, found, ""
        shared = max(shared, len(mine.keys() & others.keys()))
    runs = "no run" if not shared else "one run only, which shows no spread,"
    reason = (
        f"their best configs share {runs} on the same seed and label split, both of the search or both of"
    )
    return "search", None, f"Not compared: {reason} the confirmation; a difference needs two."


_ROLES: tuple[Role, ...] = ("confirm", "search")


def _incomparable(studies: tuple[StudyConfig, StudyConfig], sides: tuple[Side, Side]) -> str:
    one, other = studies
    first, second = one.objectives[0], other.objectives[0]
    names = (data_name(one.data), data_name(other.data))
    if one.data.source != other.data.source or names[0] != names[1]:
        return f"other data ({names[0]} and {names[1]})"
    if (one.data.validation, one.data.label_indices) != (other.data.validation, other.data.label_indices):
        return (
            f"other validation images (data.validation {one.data.validation} and {other.data.validation}"
            + (", other label_indices)" if one.data.label_indices != other.data.label_indices else ")")
        )
    if (first.metric, first.direction) != (second.metric, second.direction):
        return (
            f"another objective ({first.metric}, {first.direction} and {second.metric}, {second.direction})"
        )
    missing = [side.study for side in sides if side.best is None]
    return f"no trial of {' and '.join(missing)} has been trained to its end" if missing else ""


def _rows(folder: StudyFolder, side: Side) -> list[Row]:
    """All trials of the best config."""
    assert side.best is not None
    wanted = pc.field("config_id") == side.best.config_id
    rows: list[Row] = folder.table("trials", _ANSWER, wanted).sort_by("trial").to_pylist()
    return rows


def _runs(rows: Sequence[Row], study: StudyConfig, role: Role) -> Mapping[Pair, float]:
    configs = grouped(rows, study)
    return configs[0].runs(role) if configs else {}


def _same_splits(studies: tuple[StudyConfig, StudyConfig], rows: Sequence[Sequence[Row]]) -> bool:
    """Whether equal seeds drew equal splits, as they do from the same images; a path alone does not tell."""
    one, other = (study.data for study in studies)
    if (one.labels, one.labeled_in_unlabeled) != (other.labels, other.labeled_in_unlabeled):
        return one.path == other.path  # splits differ by what was asked for; validation images do not
    mine, others = ({row["label_split"]: row["split"] for row in each if row["split"]} for each in rows)
    return all(mine[seed] == others[seed] for seed in mine.keys() & others.keys())


def _compared(sides: tuple[Side, Side], found: Difference, role: Role, study: StudyConfig) -> str:
    one, other = (f"the best of {side.study}" for side in sides)
    if sides[0].best and sides[1].best and sides[0].best.config_id == sides[1].best.config_id:
        names = " and ".join(dict.fromkeys(side.best.name for side in sides if side.best))
        return f"Both have the same best config ({names})."
    objective = study.objectives[0]
    words = {True: "better", False: "worse", None: "not shown to be better or worse"}
    lies = against(objective.metric, found, other)
    said = f"{one[0].upper()}{one[1:]} lies {lies}, on {found.n} shared runs"
    said = f"{said}: {words[verdict(found, objective.direction)]}"
    said += "; by the search's own runs, which chose them: not confirmed" if role == "search" else ""
    return f"{said}."


def _trials(store: Store, one: str, other: str) -> TrialDiff:
    (first, study), (second, other_study) = (_trial(store, name) for name in (one, other))
    curves = [_curve(store, name) for name in (one, other)]
    common = max(curves[0].keys() & curves[1].keys(), default=None)
    return TrialDiff(
        (one, other),
        tuple(differences(_config(first), _config(second))),
        (study.objectives[0].metric, other_study.objectives[0].metric),
        {name: (first[name], second[name]) for name in FIGURES},
        common,
        None if common is None else (curves[0][common], curves[1][common]),
    )


def _trial(store: Store, name: str) -> tuple[Row, StudyConfig]:
    """The row of STUDY/TRIAL, and its study."""
    above, _, trial = name.partition("/")
    folder = store.study(above)
    study = read_study(folder)
    return trial_row(folder, trial), study


def _config(row: Row) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(row["config"] or "{}")
    return config


def _curve(store: Store, name: str) -> dict[int, float]:
    """The validation error by step."""
    above, _, trial = name.partition("/")
    wanted = pc.field("trial") == trial
    rows = store.study(above).table("metrics", ["step", "validation_error"], wanted).to_pylist()
    return {row["step"]: row["validation_error"] for row in rows if is_finite(row["validation_error"])}
