"""How a study of the store stands, wherever it runs: from its tables and its driver's last words."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from pydantic import TypeAdapter

from cbe.configs import leader
from cbe.errors import CbeError, InputError
from cbe.spec import StudyConfig
from cbe.store.folder import SUBMISSION, Store, StudyFolder
from cbe.store.index import NOTHING, Known
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
_AT_ONCE = 16  # studies read


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
    reason: str | None  # it stopped, was interrupted or cannot be read
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


def overviews(store: Store) -> list[Overview]:
    """Every study of the store, one that cannot be read included.

    Of those at rest the index tells how they stand; what it does not know is noted there.
    """
    known = store.known()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = pool.map(lambda name: _look(store, name, known[name]), known)
        found = {name: seen for name, seen in zip(known, looked, strict=True) if seen is not None}
    news = {name: seen.note for name, seen in found.items() if seen.note is not None}
    with suppress(CbeError):  # who may not write here reads more the next time
        store.index.note((name, known[name], row) for name, row in news.items())
    return [seen.overview for seen in found.values()]


@dataclass(frozen=True)
class _Look:
    overview: Overview
    note: Mapping[str, Any] | None = None  # for the index, where it does not have it


def _look(store: Store, name: str, known: Known) -> _Look | None:
    folder = store.study(name)
    if (found := rested(folder, known)) is not None:
        return _Look(found)
    try:
        stamp = stamp_of(folder)
        found, last = _read(store, name)
        return _Look(found, note(folder, found, last, stamp))
    except InputError:  # deleted meanwhile
        return None


def rested(folder: StudyFolder, known: Known) -> Overview | None:
    """How a study at rest stands by the index; None where it has to be looked at."""
    return Overview.from_plain(json.loads(known.overview or "{}")) if is_current(folder, known) else None


def is_current(folder: StudyFolder, known: Known) -> bool:
    """Whether the index knows how a study rests."""
    return known.at_rest and known.stamp == stamp_of(folder)


def note(folder: StudyFolder, found: Overview, last: Status, stamp: str) -> Mapping[str, Any] | None:
    """What the index may have of a study that was seen so; None where it may change at any time.

    A driver of which nothing was heard for a while may be heard of again, so that its own word is needed.
    """
    if found.under_way or found.state == "unreadable" or last.plain.get("state") == "running":
        return None
    submission = folder.read(SUBMISSION)
    return {
        "state": found.state,
        "stamp": stamp,
        "overview": json.dumps(found.to_plain()),
        "submission": submission.decode("utf-8", "replace") if submission else None,
    }


def settle(store: Store, name: str) -> None:
    """Notes in the index how a study rests whose driver has just ended; else who lists the store does."""
    known = store.index.of(name)
    seen = _look(store, name, NOTHING)
    if seen and seen.note:
        store.index.note([(name, known, seen.note)])


def stamp_of(folder: StudyFolder) -> str:
    """What tells that files were changed behind our back: on a disk it costs next to nothing."""
    return str(folder.stamp()) if folder.location.local else ""


def overview(store: Store, name: str) -> Overview:
    """One study, also one that cannot be read; refuses a name that the store does not have."""
    return _read(store, name)[0]


def _read(store: Store, name: str) -> tuple[Overview, Status]:
    try:
        study, folder = load(store, name)
        last = status(folder)
        return _overview(study, last, _rows(folder, last)), last
    except InputError as error:
        if not store.study(name).exists():
            raise
        nothing = dict.fromkeys(Overview.__dataclass_fields__)
        unreadable: dict[str, Any] = {"study": name, "question": "", "state": "unreadable", "counts": {}}
        return Overview(**{**nothing, **unreadable, "reason": str(error), "spent": Spent()}), Status({})


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
        reason=last.why,
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
