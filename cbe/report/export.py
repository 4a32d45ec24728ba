"""A study's tables as files for other programs: CSV, Parquet, or a database that Optuna opens.

What is exported is whole or not there: it is made aside, and renamed when all of it is written.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from cbe.errors import InputError, RunError
from cbe.report.lookup import read_study
from cbe.spec import StudyConfig
from cbe.store.folder import StudyFolder
from cbe.store.schema import TABLES, TRIALS, Table
from cbe.store.states import current_trials

Format = Literal["csv", "parquet", "optuna"]

_ORDER = {"events": ("time", "id")}  # ids say nothing; the others are in the order of their keys
_CELLS = 4_000_000  # numbers in memory at a time, about; a confusion matrix of 100 classes has 10,000
_BATCH = 1024  # rows that are made into text at a time


@dataclass(frozen=True)
class Exported:
    path: Path
    rows: dict[str, int]  # by table; of Optuna, its trials
    left_out: int = 0  # trials that Optuna cannot hold


def export(folder: StudyFolder, to: Format, path: Path | str | None = None) -> Exported:
    """Writes a study's tables to a new folder, or its search to a new SQLite file."""
    study = read_study(folder)
    if "://" in str(path):
        raise InputError(f"{path}: wanted a local path; export it here and copy it there")
    target = Path(path or (f"{study.name}.db" if to == "optuna" else f"{study.name}-{to}"))
    with _aside(target) as aside:
        if to == "optuna":
            exported, left_out = _optuna(folder, study, aside)
            return Exported(target, {"trials": exported}, left_out)
        aside.mkdir()
        write = _write_csv if to == "csv" else _write_parquet
        return Exported(
            target, {name: write(folder, kind, aside / f"{name}.{to}") for name, kind in TABLES.items()}
        )


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """A place beside the target, which becomes it at the end; whatever fails, nothing is left there."""
    _require_new(target)
    if not target.parent.is_dir():
        raise InputError(f"{target}: there is no folder {target.parent}; make it, or give another -o")
    aside = target.parent / f".{target.name}.{uuid.uuid4().int}"
    try:
        yield aside
        _require_new(target)
        aside.rename(target)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(
            f"{target}: could not be written ({reason}); free some space, or give another -o"
        ) from error
    finally:
        for left in target.parent.iterdir():  # a database has a journal beside it
            if left.name.startswith(aside.name):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _require_new(target: Path) -> None:
    if os.path.lexists(target):
        raise InputError(f"{target}: is there already; remove it, or give another -o")


def _write_csv(folder: StudyFolder, table: Table, path: Path) -> int:
    schema = pa.schema([pa.field(field.name, _as_text(field.type)) for field in table.schema])
    with pa.csv.CSVWriter(str(path), schema) as file:
        return _pour(
            folder, table, lambda rows: [file.write_batch(_texts(batch, schema)) for batch in _batches(rows)]
        )


def _write_parquet(folder: StudyFolder, table: Table, path: Path) -> int:
    with pq.ParquetWriter(str(path), table.schema, compression="zstd") as file:
        return _pour(folder, table, file.write_table)


def _pour(folder: StudyFolder, table: Table, write: Callable[[pa.Table], object]) -> int:
    """Hands the latest rows to `write`, in order; a large table some trials at a time."""
    order = [(name, "ascending") for name in _ORDER.get(table.name, table.key)]
    count = 0
    for where in _portions(folder, table):
        found = current_trials(folder) if table is TRIALS else folder.table(table.name, where=where)
        rows = found.sort_by(order)
        count += len(rows)
        write(rows)
    return count


def _portions(folder: StudyFolder, table: Table) -> Iterator[pc.Expression | None]:
    """Conditions under which the table is read part by part: trials in order, and never too many."""
    if table.key[0] != "trial" or len(table.key) == 1:
        yield None
        return
    found = pc.value_counts(folder.table(table.name, ["trial"])["trial"]).to_pylist()
    counts = {each["values"]: each["counts"] for each in found}
    most = max(1, _CELLS // _cells(folder, table, min(counts, default="")))
    names: list[str] = []
    held = 0
    for name in sorted(counts):
        if names and held + counts[name] > most:
            yield pc.field("trial").isin(names)
            names, held = [], 0
        names.append(name)
        held += counts[name]
    if names:
        yield pc.field("trial").isin(names)


def _cells(folder: StudyFolder, table: Table, trial: str) -> int:
    """How many numbers a row has, by the largest of one trial's."""
    lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
    rows = folder.table(table.name, lists, pc.field("trial") == trial)
    return len(table.schema) + max((len(_flat(row.values())) for row in rows.to_pylist()), default=0)


def _flat(values: Any) -> list[Any]:
    return [n for each in values for n in (_flat(each) if isinstance(each, list) else [each])]


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = rows.to_batches(max_chunksize=_BATCH)
    return batches


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_list(kind) or pa.types.is_timestamp(kind) else kind


def _texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Lists as JSON and times as ISO 8601, in UTC."""
    columns = []
    for column in batch.columns:
        if pa.types.is_timestamp(column.type):
            columns.append(pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ"))
        elif pa.types.is_list(column.type):
            texts = [None if value is None else json.dumps(_finite(value)) for value in column.to_pylist()]
            columns.append(pa.array(texts, pa.string()))
        else:
            columns.append(column)
    return pa.record_batch(columns, schema=schema)


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if value is None or not math.isfinite(value) else value


def _optuna(folder: StudyFolder, study: StudyConfig, path: Path) -> tuple[int, int]:
    """The search as an Optuna study in a new SQLite file: how many trials it holds, and how many not."""
    from cbe.store.history import remembered

    if "?" in str(path):
        raise InputError(f"{path.parent}: a ? in the path of a database is read as the end; give another -o")
    rows = current_trials(folder).sort_by("trial").to_pylist()
    curves = _curves(folder, study.objectives[0].metric)
    exported = []
    for row in rows:
        trial = remembered(study, row, curves.get(row["trial"]))
        if trial is not None:
            trial.datetime_start = _local(row["started"]) or trial.datetime_start
            if trial.state.is_finished():
                trial.datetime_complete = _local(row["updated"]) or trial.datetime_complete
            trial.user_attrs |= {"config_id": row["config_id"], "state": row["state"]}
            exported.append(trial)
    with _database(path) as (optuna, storage):
        directions = [objective.direction for objective in study.objectives]
        made = optuna.create_study(study_name=study.name, storage=storage, directions=directions)
        made.set_metric_names([objective.metric for objective in study.objectives])
        made.set_user_attr("question", study.question)
        made.add_trials(exported)
    return len(exported), len(rows) - len(exported)


@contextmanager
def _database(path: Path) -> Iterator[tuple[Any, Any]]:
    """Optuna, without its remarks, and a new storage; closed at the end, since the file is to be renamed."""
    import optuna
    from optuna.exceptions import ExperimentalWarning, StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
            yield optuna, storage
    except (SQLAlchemyError, StorageInternalError) as error:
        raise OSError(str(error).splitlines()[0]) from error
    finally:
        optuna.logging.set_verbosity(verbosity)
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def _curves(folder: StudyFolder, metric: str) -> dict[str, dict[int, float]]:
    """The objective of every trial by step."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    columns = folder.table("metrics", ["trial", "step", metric]).sort_by(
        [("trial", "ascending"), ("step", "ascending")]
    )
    for trial, step, value in zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True):
        if value is not None:
            found[trial][step] = value
    return found


def _local(time: datetime | None) -> datetime | None:
    """As Optuna has times: the machine's own, without a zone."""
    return time.astimezone().replace(tzinfo=None) if time else None
