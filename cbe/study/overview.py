"""How a study of the store stands, whoever runs it: from its tables and its driver's last words."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.store.folder import Store, StudyFolder
from cbe.study.control import Status, status
from cbe.study.start import journal, load

Row = Mapping[str, Any]

PRESETS = 2  # the paper's config and the base are confirmed too
ENDED = ("completed", "stopped", "failed")
_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "seed", "split_seed", "step", "steps"),
    *("objective", "last_test_error", "wall_s", "cost_usd", "started", "updated"),
    *("error_class", "error_text"),
)


@dataclass(frozen=True)
class Part:
    """One of the two parts of a study."""

    done: int
    total: int


@dataclass(frozen=True)
class Overview:
    """A study in one line."""

    study: str
    question: str
    state: str  # new, running, finished, halted, interrupted; unreadable where its file is no study
    why: str | None  # it halted, was interrupted or cannot be read
    stage: str | None  # search or confirm
    search: Part | None
    confirm: Part | None
    counts: dict[str, int]  # trials by state
    metric: str | None
    best: float | None  # of the search's trials that were trained to the end
    best_trial: str | None
    updated: datetime | None

    def to_plain(self) -> dict[str, Any]:
        return asdict(self) | {"updated": self.updated.isoformat() if self.updated else None}


@dataclass(frozen=True)
class Details:
    """A study in full."""

    overview: Overview
    trials: tuple[Row, ...]
    running: Mapping[str, Any]  # what the driver said last: elapsed_s, eta_s, steps_per_s, problem
    optuna: str  # a file or a URL that optuna-dashboard opens

    def to_plain(self) -> dict[str, Any]:
        told = {key: self.running.get(key) for key in ("elapsed_s", "eta_s", "steps_per_s", "problem")}
        trials = [{key: _plain(key, value) for key, value in row.items()} for row in self.trials]
        return {**self.overview.to_plain(), **told, "optuna": self.optuna, "trials": trials}


def overviews(store: Store) -> Iterator[Overview]:
    """Every study of the store, one that cannot be read included."""
    for name in store.names():
        try:
            study, folder = load(store, name)
            last = status(folder)
            yield _overview(study, last, _rows(folder, last))
        except InputError as error:
            nothing = dict.fromkeys(Overview.__dataclass_fields__)
            told: dict[str, Any] = {"study": name, "question": "", "state": "unreadable", "counts": {}}
            yield Overview(**{**nothing, **told, "why": str(error)})


def details(store: Store, name: str) -> Details:
    """One study with all its trials."""
    study, folder = load(store, name)
    last = status(folder)
    rows = _rows(folder, last)
    optuna = study.storage.optuna or str(journal(folder))
    return Details(_overview(study, last, rows), tuple(rows), last.plain, optuna)


def _rows(folder: StudyFolder, last: Status) -> list[Row]:
    """The search's trials, then those of the confirmation; nothing runs where no driver does."""
    rows = folder.table("trials", _COLUMNS).to_pylist()
    for row in rows:
        if row["state"] == "running" and not last.alive:
            row["state"] = "interrupted"
    return sorted(rows, key=lambda row: (row["role"] != "search", row["trial"]))


def _overview(study: StudyConfig, last: Status, rows: Sequence[Row]) -> Overview:
    searched = [row for row in rows if row["role"] == "search"]
    search = Part(_ended(searched), study.trials)
    most = (study.confirm.configs + PRESETS) * len(study.confirm_pairs)
    confirmed = [row for row in rows if row["role"] == "confirm"]
    found = _best(study, searched)
    return Overview(
        study=study.name,
        question=study.question,
        state=last.state,
        why=last.plain.get("halted") or last.plain.get("why"),
        stage="search" if search.done < search.total else "confirm" if most else None,
        search=search,
        confirm=Part(_ended(confirmed), last.plain.get("confirmations", most)),
        counts=dict(Counter(row["state"] for row in rows)),
        metric=study.objectives[0].metric,
        best=found["objective"] if found else None,
        best_trial=found["trial"] if found else None,
        updated=max((row["updated"] for row in rows if row["updated"]), default=None),
    )


def _ended(rows: Sequence[Row]) -> int:
    return sum(row["state"] in ENDED for row in rows)


def _best(study: StudyConfig, searched: Sequence[Row]) -> Row | None:
    sign = 1 if study.objectives[0].direction == "minimize" else -1
    measured = [
        row
        for row in searched
        if row["state"] == "completed" and row["objective"] is not None and math.isfinite(row["objective"])
    ]
    return min(measured, key=lambda row: (sign * row["objective"], row["trial"]), default=None)


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.loads(value) if key == "params" and value else value
