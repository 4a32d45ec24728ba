"""What a report is made of: a study's tables, read once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbe.configs import grouped, is_finite
from cbe.errors import InputError
from cbe.names import config_names, trial_order
from cbe.report.best import Answer, Ranked, best
from cbe.report.lookup import data_facts, read_study
from cbe.report.machines import MachineHistory, machines
from cbe.report.progress import Progress, read_progress
from cbe.spec import Objective, StudyConfig
from cbe.spec.metrics import REPORTED
from cbe.spec.terms import PRESETS
from cbe.store.folder import StudyFolder
from cbe.store.rows import Row
from cbe.store.states import current_trials, status

Curve = Mapping[str, Sequence[Any]]  # columns of `metrics` in order of step
Matrices = Mapping[str, Sequence[Sequence[float]]]  # the last ones of a trial, by kind

MOST_CURVES = 200
_RANKED = 5

_TRIALS = (
    *("trial", "role", "preset", "state", "config_id", "params", "config", "seed", "label_split"),
    *("objective", "values", "step", "steps", "last_validation_error", "last_test_error"),
    *("parameters", "macs", "started", "updated", "wall_s", "gpu_s", "cost_usd", "node", "device"),
    *("workers", "retries", "versions", "git_commit", "error_class", "error_text", "reused_from"),
)


@dataclass(frozen=True)
class DataFacts:
    """What the study's driver found in its data; all empty in a study that recorded nothing."""

    classes: tuple[str, ...] = ()
    sentence: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    study: StudyConfig
    rows: Sequence[Row]  # of `trials`, the search first, in order of their names
    curves: Mapping[str, Curve]  # by trial: the objective alone, of chosen trials all figures
    confusions: Mapping[str, Matrices]  # by chosen trial
    answer: Answer | None
    no_answer: str  # why there is none
    progress: Progress
    read: datetime
    machines: MachineHistory | None = None  # of a cluster of several
    data: DataFacts = DataFacts()

    @property
    def objective(self) -> Objective:
        return self.study.objectives[0]

    @property
    def search(self) -> list[Row]:
        return [row for row in self.rows if row["role"] == "search"]

    @property
    def counts(self) -> Counter[str]:
        return Counter(str(row["state"]) for row in self.rows)

    @property
    def finished(self) -> bool:
        return self.progress.state == "finished"

    @cached_property
    def chosen(self) -> dict[str, Ranked]:
        """The configs that every figure names alike: the best that was searched, the paper's, the base."""
        return _chosen(self.answer)

    @cached_property
    def _names(self) -> dict[str, str]:
        return config_names(self.rows)

    def name(self, row: Row) -> str:
        """What a person calls the config of a trial; empty for a trial without one."""
        return self._names.get(row["config_id"], "")

    def called(self, part: str) -> str:
        """One of the chosen configs in a sentence."""
        return {"paper": "the paper’s config", "base": "the base"}.get(part) or self.chosen[part].name

    @cached_property
    def _parts(self) -> dict[str, str]:
        return {each.config_id: name for name, each in self.chosen.items()}

    def part(self, row: Row) -> str | None:
        """Which of the chosen configs a trial is of."""
        return self._parts.get(row["config_id"])


def point_of(row: Row) -> dict[str, Any]:
    """What was sampled for a trial."""
    point: dict[str, Any] = json.loads(row["params"] or "{}")
    return point


def gather(folder: StudyFolder) -> Evidence:
    """Reads a study, whatever state it is in; refuses one without any trial."""
    found = gather_any(folder)
    if not found.rows:
        raise InputError(
            f"{folder.name}: has no trials yet, so there is nothing to report; "
            f"start them with `cbe resume {folder.name}`"
        )
    return found


def gather_any(folder: StudyFolder) -> Evidence:
    """Reads a study, also before its first trial."""
    study, now = read_study(folder), datetime.now(UTC)
    last = status(folder)
    rows = current_trials(folder, _TRIALS, last=last).to_pylist()
    rows.sort(key=trial_order)
    answer, reason = _answer(folder, study, rows)
    chosen = [trial for ranked in _chosen(answer).values() for trial in ranked.trials]
    return Evidence(
        study=study,
        rows=rows,
        curves=_curves(folder, study, chosen, _drawn(rows, chosen)),
        confusions=_confusions(folder, chosen),
        answer=answer,
        no_answer=reason,
        progress=read_progress(last),
        read=now,
        machines=machines(folder),
        data=_data(folder),
    )


def _answer(folder: StudyFolder, study: StudyConfig, rows: Sequence[Row]) -> tuple[Answer | None, str]:
    if grouped(rows, study):
        return best(folder, max(_RANKED, study.confirm.configs), study), ""
    if not rows:
        return None, "The first trial appears here when it starts."
    said = "No trial has completed."
    failed = [row for row in rows if row["state"] == "failed"]
    if not failed:
        return None, said
    last = max(failed, key=lambda row: (row["updated"] is not None, row["updated"], row["trial"]))
    return None, f"{said} Trial {last['trial']} failed last: {last['error_class']}: {last['error_text']}"


def _chosen(answer: Answer | None) -> dict[str, Ranked]:
    found: dict[str, Ranked] = {}
    for ranked in answer.ranked if answer else ():
        found.setdefault(ranked.preset or "chosen", ranked)
    return {name: found[name] for name in ("chosen", *PRESETS) if name in found}


def _drawn(rows: Sequence[Row], chosen: Sequence[str]) -> list[str]:
    """The trials whose curves are drawn: of many, every so-manieth, so that no time is left out."""
    others = [row["trial"] for row in rows if row["trial"] not in set(chosen) and row["step"]]
    every = -(-len(others) // MOST_CURVES) or 1
    return others[::every]


def _curves(
    folder: StudyFolder, study: StudyConfig, chosen: Sequence[str], others: Sequence[str]
) -> dict[str, Curve]:
    whole = folder.table("metrics", ("trial", "step", *REPORTED), _of(chosen))
    metric = study.objectives[0].metric
    varied = [key for key in ("loss.weights.lb", "loss.weights.lv") if key in study.search]
    figures = dict.fromkeys((metric, "validation_error", *(("pseudo_accuracy",) if varied else ())))
    rest = folder.table("metrics", ("trial", "step", *figures), _of(others))
    return _by_trial(rest) | _by_trial(whole)


def _of(trials: Sequence[str]) -> pc.Expression:
    return pc.field("trial").isin(pa.array(trials, pa.string()))  # typed, since there may be none


def _by_trial(table: pa.Table) -> dict[str, Curve]:
    names = [name for name in table.column_names if name != "trial"]
    found: dict[str, dict[str, list[Any]]] = {}
    for row in table.sort_by([("trial", "ascending"), ("step", "ascending")]).to_pylist():
        curve = found.setdefault(row["trial"], {name: [] for name in names})
        for name in names:
            value = row[name]
            curve[name].append(value if name == "step" or is_finite(value) else None)
    return dict(found)


def _confusions(folder: StudyFolder, chosen: Sequence[str]) -> dict[str, Matrices]:
    """The last matrix of each kind."""
    table = folder.table("confusions", where=_of(chosen))
    found: dict[str, dict[str, Any]] = {}
    for row in table.sort_by("step").to_pylist():
        if row["matrix"]:
            found.setdefault(row["trial"], {})[row["kind"]] = row["matrix"]
    return dict(found)


def _data(folder: StudyFolder) -> DataFacts:
    plain = data_facts(folder) or {}
    classes, warnings = (tuple(map(str, plain.get(key) or ())) for key in ("classes", "warnings"))
    return DataFacts(classes, str(plain.get("sentence") or ""), warnings)
