"""What happens in a study, put down as it happens.

Calls only note rows in memory; a thread writes them every `flush_s` seconds. A write that fails keeps its
rows for the next turn, however long the store does not answer. What was flushed survives the process however
it ends. Where another driver has taken over (`cbe.store.epochs`), nothing more is written.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from cbe.errors import CbeError, RunError, Superseded
from cbe.spec.metrics import REPORTED
from cbe.store import epochs
from cbe.store.clock import catch_up, tick
from cbe.store.epochs import EpochWriter
from cbe.store.folder import StudyFolder
from cbe.store.outage import Outage
from cbe.store.past import COLUMNS, PastReports
from cbe.store.redact import redact, redacted_json
from cbe.store.schema import METRICS, SCALING, TABLES, TRIALS, build, fit

_Row = dict[str, Any]  # of any table, as it is to be written

MOST_FILES = 64

_MATRICES = {"validation": "confusion", "pseudo": "pseudo_confusion"}
_EMPTY: _Row = dict.fromkeys(TRIALS.schema.names)
_FROM_REPORT = (*REPORTED, "thresholds", "wall_s")


@dataclass
class _Queue:
    """Rows not yet written."""

    metrics: list[_Row] = field(default_factory=list)
    confusions: list[_Row] = field(default_factory=list)
    trials: dict[str, _Row] = field(default_factory=dict)  # the latest of each is all that counts
    events: list[_Row] = field(default_factory=list)
    scaling: list[_Row] = field(default_factory=list)

    def tables(self) -> dict[str, list[_Row]]:
        """In the order of writing: a trial's row never precedes its metrics."""
        trials = list(self.trials.values())
        return {
            "metrics": self.metrics,
            "confusions": self.confusions,
            "trials": trials,
            "events": self.events,
            "scaling": self.scaling,
        }

    def __len__(self) -> int:
        return sum(map(len, self.tables().values()))

    def __add__(self, later: _Queue) -> _Queue:
        return _Queue(
            self.metrics + later.metrics,
            self.confusions + later.confusions,
            self.trials | later.trials,
            self.events + later.events,
            self.scaling + later.scaling,
        )


class Recorder:
    """Safe to call from several threads; one recorder a study."""

    def __init__(self, folder: StudyFolder, flush_s: float = 1.0, writer: EpochWriter | None = None) -> None:
        """`writer` is that of a study's driver, which may be shut out."""
        self.folder, self._writer = folder, writer
        self.outage = Outage(self.event)
        self.superseded: Superseded | None = None  # by another driver
        self.past = PastReports(METRICS.fields(COLUMNS).empty_table())  # `load` reads it
        self._rows: dict[str, _Row] = {}
        self._last: dict[str, int] = {}  # the last step of each trial that has reported
        self._queue = _Queue()
        self._noting = threading.Lock()  # of the three above
        self._writing = threading.Lock()  # one write at a time, so that the order is kept
        self._failure: str | None = None  # of the last write
        self._refused: list[str] = []  # rows that no table can hold
        self._files: dict[str, int] = {}  # of each table, once counted
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, args=[flush_s], name="recorder", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> MappingProxyType[str, _Row]:
        """The latest row of every trial; rows are replaced, never changed. Iterate over `rows.copy()`."""
        return MappingProxyType(self._rows)

    @property
    def problem(self) -> str | None:
        """Why rows are not in the store that should be."""
        return self._failure or self.outage.why or (self._refused[0] if self._refused else None)

    def load(self) -> Recorder:
        """Takes up what an earlier recorder of this study has written."""
        rows = {row["trial"]: row for row in self.folder.table("trials").to_pylist()}
        self.past = PastReports.read(self.folder)
        catch_up(max([self.past.revision, *(row["revision"] for row in rows.values())]))
        with self._noting:
            self._rows.update({trial: row for trial, row in rows.items() if trial not in self._rows})
            self._last = self.past.last_steps() | self._last
        return self

    def trial(self, trial_id: str, **columns: Any) -> None:
        """Changes some columns of a trial's row, or begins the row."""
        change: _Row = {"updated": _now()}
        change |= {name: fit(TRIALS, name, value) for name, value in columns.items()}
        if change.get("error_text"):
            change["error_text"] = redact(change["error_text"])
        change |= {"study": self.folder.name, "trial": trial_id}
        with self._noting:
            change["revision"] = tick()
            before = self._rows.get(trial_id) or _EMPTY | {"epoch": self._writer and self._writer.epoch}
            self._rows[trial_id] = self._queue.trials[trial_id] = before | change

    def metrics(self, trial_id: str, metrics: Mapping[str, Any], *, replace: bool = False) -> None:
        """Keeps one report of a trial; unless replacing, only of a step later than those recorded."""
        step = int(metrics["step"])
        about: _Row = {"study": self.folder.name, "trial": trial_id, "step": step}
        row = about | {name: fit(METRICS, name, metrics[name]) for name in _FROM_REPORT if name in metrics}
        row["time"] = _now()
        matrices = [
            about | {"kind": kind, "matrix": metrics[name]}
            for kind, name in _MATRICES.items()
            if metrics.get(name) is not None
        ]
        with self._noting:
            last = self._last.get(trial_id, 0)
            if step <= last and not replace:
                return
            self._last[trial_id] = max(step, last)
            revision = {"revision": tick()}
            row |= revision
            self._queue.metrics.append(row)
            self._queue.confusions.extend(matrix | revision for matrix in matrices)

    def event(self, kind: str, trial: str | None = None, **details: Any) -> None:
        """Keeps something that happened, with details as JSON can hold them."""
        row: _Row = {"study": self.folder.name, "id": uuid.uuid4().hex, "time": _now(), "trial": trial}
        row |= {"kind": kind, "details": redacted_json(details)}
        with self._noting:
            self._queue.events.append(row)

    def scaling(self, **seen: Any) -> None:
        """Keeps what the cluster looked like."""
        row: _Row = {name: fit(SCALING, name, value) for name, value in seen.items()}
        row |= {"study": self.folder.name, "id": uuid.uuid4().hex, "time": _now()}
        with self._noting:
            self._queue.scaling.append(row)

    @property
    def reported(self) -> set[str]:
        """Trials that have a report; a killed driver may have written it, and not the trial's row."""
        with self._noting:
            return set(self._last)

    def recorded_step(self, trial_id: str) -> int:
        """The last step of a trial that has a report; 0 where there is none."""
        with self._noting:
            return self._last.get(trial_id, 0)

    def flush(self) -> None:
        """Writes what was noted; where that fails, `problem` says why and the rows wait for the next time."""
        with self._writing:
            if self.superseded:
                return
            queue = _Queue()
            try:
                with self._noting:
                    queue, self._queue = self._queue, queue
                self._failure = None
                for table, rows in queue.tables().items():
                    self._append(table, rows)
                    getattr(queue, table).clear()
                self.outage.over("rows")
            except Superseded as error:
                self.superseded = error
            except Exception as error:  # whatever it is, the rows must stay and the thread go on
                self._failure = redact(str(error) if isinstance(error, CbeError) else repr(error))
                self.outage.met("rows", self._failure)
            finally:
                with self._noting:
                    self._queue = queue + self._queue

    def finish(self) -> None:
        """Writes the rest of a study that is over, and leaves one file of each table."""
        self.close()
        with suppress(Exception):  # whatever it is, the rows are safe in their many files
            if self._writer:
                epochs.close(self.folder, self._writer.epoch)
            self.folder.finish()

    def close(self) -> None:
        """Writes the rest and ends the thread; raises where rows could not be written."""
        self._closing.set()
        self._thread.join()
        self.flush()
        if self._failure is None:
            self.flush()  # that it has worked again is a row, too
        if self.superseded:
            raise self.superseded
        lost = len(self._queue) + len(self._refused)
        if lost:
            raise RunError(f"{self.folder.uri}: {lost} rows could not be written: {self.problem}")

    def _append(self, table: str, rows: list[_Row]) -> None:
        append = self._writer.append if self._writer else self.folder.append
        try:
            append(table, rows)
        except (TypeError, ValueError, OverflowError):
            # One row that cannot be stored must not keep the others waiting for ever.
            faults = [(row, _fault(table, row)) for row in rows]
            append(table, [row for row, fault in faults if fault is None])
            self._refused += [fault for _, fault in faults if fault is not None]
        if table in self._files and rows:
            self._files[table] += 1

    def _work(self, flush_s: float) -> None:
        swept = False
        while not self._closing.wait(flush_s) and not self.superseded:
            self.flush()
            try:
                if not swept:
                    self.folder.sweep()
                    # Also deletes what a driver that was killed had merged.
                    self._files = {table: self.folder.compact(table, least=MOST_FILES) for table in TABLES}
                    swept = True
                self._compact()
            except Exception:  # the rows are safe in their many files; the thread must go on writing
                continue

    def _compact(self) -> None:
        for table, files in list(self._files.items()):
            if files > MOST_FILES:
                self._files[table] = 0  # also where it fails: to be tried again after as many files
                self._files[table] = self.folder.compact(table)


def _now() -> datetime:
    return datetime.now(UTC)


def _fault(table: str, row: _Row) -> str | None:
    try:
        build(TABLES[table], [row])
    except (TypeError, ValueError, OverflowError) as error:
        return redact(f"table {table}, trial {row.get('trial')}, step {row.get('step')}: {error}")
    return None
