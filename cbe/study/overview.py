"""How a study of the store stands, whoever runs it: from its tables and its driver's last words."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from pydantic import TypeAdapter

from cbe.configs import leader
from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.store.folder import Store, StudyFolder
from cbe.store.rows import Row
from cbe.store.states import COUNTED, UNDER_WAY, Status, current_trials, status
from cbe.study.lifecycle import journal, load

_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "seed", "label_split", "step", "steps"),
    *("objective", "last_test_error", "wall_s", "gpu_s", "cost_usd", "started", "updated"),
    *("error_class", "error_text", "reused_from"),
)
_NUMBERS = ("objective", "last_test_error", "wall_s", "gpu_s", "cost_usd")
_TIMES = ("started", "updated")


@dataclass(frozen=True)
class StageProgress:
    """One of the two parts of a study."""

    done: int
    total: int


@dataclass(frozen=True)
class Spent:
    """What all trials of a study have taken so far, and what their machines have cost beside them."""

    trial_hours: float = 0.0
    gpu_hours: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True)
class Overview:
    """A study in one line."""

    study: str
    question: str
    state: str  # one of STUDY_STATES; queued, starting, stopping and failed as a service says
    why: str | None  # it stopped, was interrupted or cannot be read
    stage: str | None  # search or confirm
    search: StageProgress | None
    confirm: StageProgress | None
    counts: dict[str, int]  # trials by state, those that wait at a rung as paused
    metric: str | None
    best: float | None  # the mean of the config that ranks first, over runs that were trained to their end
    best_trial: str | None  # the first of that config
    best_role: str | None  # whose runs it ranks by: the search's, or the confirmation's
    updated: datetime | None
    elapsed_s: float | None  # that its drivers have run, all starts together, as the last one said
    eta_s: tuple[float, float] | None  # seconds left at least and at most, while it runs
    steps_per_s: float | None
    problem: str | None  # why results could not be written
    outage: str | None  # the last time that the store did not answer its driver
    spent: Spent
    cut_short: str | None  # why the search ended before its last trial: the confirmation needs the rest
    unspent: dict[str, float] | None  # of each limit, and of runs to confirm; None: it has not finished

    @property
    def under_way(self) -> bool:
        """Whether it goes on by itself."""
        return self.state in UNDER_WAY

    def to_plain(self) -> dict[str, Any]:
        updated = self.updated.isoformat() if self.updated else None
        return asdict(self) | {"under_way": self.under_way, "updated": updated}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Overview:
        """An overview out of its `to_plain`, whatever else stands there."""
        return _OVERVIEW.validate_python({name: plain.get(name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Details:
    """A study in full."""

    overview: Overview
    trials: tuple[Row, ...]
    optuna: str  # a file or a URL that optuna-dashboard opens

    def to_plain(self) -> dict[str, Any]:
        trials = [plain_row(row) for row in self.trials]
        return {**self.overview.to_plain(), "optuna": self.optuna, "trials": trials}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Details:
        """A study out of its `to_plain`, whatever else stands there."""
        trials = tuple(row_from_plain(row) for row in plain["trials"])
        return cls(Overview.from_plain(plain), trials, plain["optuna"])


def plain_row(row: Row) -> dict[str, Any]:
    """A trial as JSON holds it: times as text, its values as an object."""
    plain = {key: value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()}
    return plain | {"params": json.loads(row["params"]) if row["params"] else None}


def row_from_plain(plain: Mapping[str, Any]) -> Row:
    """A trial as the store has it."""
    times = {key: datetime.fromisoformat(plain[key]) for key in _TIMES if plain.get(key)}
    params = plain.get("params")
    return {**plain, **times, "params": None if params is None else json.dumps(params)}


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The search's trials, then those of the confirmation."""
    return sorted(rows, key=lambda row: (row["role"] != "search", row["trial"]))


def overviews(store: Store) -> Iterator[Overview]:
    """Every study of the store, one that cannot be read included."""
    for name in store.names():
        try:
            found = overview(store, name)
        except InputError:  # deleted meanwhile
            continue
        yield found


def overview(store: Store, name: str) -> Overview:
    """One study, also one that cannot be read; refuses a name that the store does not have."""
    try:
        study, folder = load(store, name)
        last = status(folder)
        return _overview(study, last, _rows(folder, last))
    except InputError as error:
        if not store.study(name).exists():
            raise
        nothing = dict.fromkeys(Overview.__dataclass_fields__)
        told: dict[str, Any] = {"study": name, "question": "", "state": "unreadable", "counts": {}}
        return Overview(**{**nothing, **told, "why": str(error), "spent": Spent()})


def details(store: Store, name: str) -> Details:
    """One study with all its trials."""
    study, folder = load(store, name)
    last = status(folder)
    rows = _rows(folder, last)
    optuna = study.storage.optuna or str(journal(folder))
    return Details(_overview(study, last, rows), tuple(rows), optuna)


def followed(look: Callable[[], Details], every_s: float = 1.0) -> Iterator[Details]:
    """A study as it goes on, looked at every now and then, until it goes on no longer."""
    while True:
        found = look()
        yield found
        if not found.overview.under_way:
            return
        time.sleep(every_s)


def _rows(folder: StudyFolder, last: Status) -> list[Row]:
    """All trials; what is no number is none."""
    rows = current_trials(folder, _COLUMNS, last=last).to_pylist()
    for row in rows:
        row.update((key, None) for key in _NUMBERS if not _is_finite(row[key]))
    return in_order(rows)


def _overview(study: StudyConfig, last: Status, rows: Sequence[Row]) -> Overview:
    searched = [row for row in rows if row["role"] == "search"]
    search = StageProgress(_ended(searched), study.trials)
    most = study.confirm_runs
    confirmed = [row for row in rows if row["role"] == "confirm"]
    found, said = leader(rows, study), last.plain
    eta_s = said.get("eta_s") if last.alive else None
    spent = _spent(rows, said.get("idle") or {})
    return Overview(
        study=study.name,
        question=study.question,
        state=last.state,
        why=last.why,
        stage=_stage(last) or ("search" if search.done < search.total else "confirm" if most else None),
        search=search,
        confirm=StageProgress(_ended(confirmed), said.get("confirmations", most)),
        counts=dict(Counter(row["state"] for row in rows)),
        metric=study.objectives[0].metric,
        best=found.mean if found else None,
        best_trial=found.trial if found else None,
        best_role=found.role if found else None,
        updated=max((row["updated"] for row in rows if row["updated"]), default=None),
        elapsed_s=said.get("elapsed_s"),
        eta_s=(eta_s[0], eta_s[1]) if eta_s else None,
        steps_per_s=said.get("steps_per_s"),
        problem=said.get("problem"),
        outage=said.get("outage"),
        spent=spent,
        cut_short=said.get("cut_short"),
        unspent=_unspent(study, last, spent, _ended(confirmed)) if last.state == "finished" else None,
    )


def _stage(last: Status) -> str | None:
    """What a driver that lives says: of a grid fewer trials may be left than were counted on."""
    said = last.plain.get("stage") if last.alive else None
    return said if said in ("search", "confirm") else None


def _spent(rows: Sequence[Row], idle: Mapping[str, float]) -> Spent:
    wall_s, gpu_s, usd = (sum(row[key] or 0.0 for row in rows) for key in ("wall_s", "gpu_s", "cost_usd"))
    return Spent(wall_s / 3600, gpu_s / 3600 + idle.get("gpu_hours", 0.0), usd + idle.get("usd", 0.0))


def _unspent(study: StudyConfig, last: Status, spent: Spent, confirmed: int) -> dict[str, float]:
    used = {"wall_hours": last.elapsed_s / 3600, "gpu_hours": spent.gpu_hours, "usd": spent.usd}
    return {**study.budget.left(used), "confirm_runs": max(0, study.confirm_runs - confirmed)}


def _ended(rows: Sequence[Row]) -> int:
    return sum(row["state"] in COUNTED for row in rows)


def _is_finite(value: float | None) -> bool:
    return value is not None and isfinite(value)


_OVERVIEW = TypeAdapter(Overview)
