"""The tables of a study: their columns, their keys, and the version written into every file.

`epoch` numbers the drivers of a study, one after the other: see `cbe.store.epochs`.

A new column needs no new version: files without it read as null, and a merge keeps columns it does not know.
A version is raised where the meaning or the type of a column changes; older code then refuses the file.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbe.errors import InputError
from cbe.spec.identity import column_types
from cbe.spec.metrics import REPORTED, SUMMARIES, SUMMARIZED

TYPES = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
    "vector": pa.list_(pa.float64()),
    "matrix": pa.list_(pa.list_(pa.float64())),
}

_LEAST_GROUP, _MOST_GROUP, _MOST_BYTES = 2**11, 2**17, 2**24  # rows, and what a group takes in memory


@dataclass(frozen=True)
class Table:
    """What every file of one table has."""

    name: str
    version: int
    key: tuple[str, ...]
    schema: pa.Schema
    order: tuple[str, ...]  # of the rows in a merged file: those of one trial lie together

    @property
    def fixed(self) -> frozenset[str]:
        """The columns that all revisions of a row have in common."""
        return frozenset((*self.key, "study") if "revision" in self.schema.names else self.schema.names)

    def fields(self, names: Sequence[str]) -> pa.Schema:
        """The named columns in the order given; refuses names the table does not have."""
        known = set(self.schema.names)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(
                f"columns {', '.join(unknown)}: the table {self.name} has none of that name; "
                f"wanted some of {', '.join(self.schema.names)}"
            )
        return pa.schema([self.schema.field(name) for name in names])

    def check(self, place: str, found: pa.Schema) -> None:
        """Refuses a file of another table, or written by a later version of this package."""
        given = (found.metadata or {}).get(b"cbe.schema", b"no table").decode()
        name, _, version = given.partition("/")
        if name != self.name or not version.isdigit():
            raise InputError(f"{place}: holds {given}; wanted {self.name}/{self.version}; move it elsewhere")
        if int(version) > self.version:
            raise InputError(
                f"{place}: was written as {given} by a newer cbe-studies; this one reads up to "
                f"{self.name}/{self.version}; install the newer one"
            )

    def encode(self, rows: pa.Table, replaces: Sequence[str] = ()) -> bytes:
        """A file of these rows; see `write`."""
        sink = pa.BufferOutputStream()
        self.write(sink, rows.schema, [rows], len(rows), replaces)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def write(
        self,
        sink: Any,
        schema: pa.Schema,
        pieces: Iterable[pa.Table],
        rows: int,
        replaces: Sequence[str] = (),
    ) -> None:
        """A file of about so many rows, in pieces; `replaces` names the files whose rows it holds."""
        about = {"cbe.schema": f"{self.name}/{self.version}"}
        if replaces:
            about["cbe.replaces"] = json.dumps(list(replaces))
        schema = schema.with_metadata(about)
        # Of small files zstd would cost more time than it saves space.
        codec = "zstd" if replaces else "snappy"
        with pq.ParquetWriter(sink, schema, compression=codec) as writer:
            for piece in pieces:
                writer.write_table(piece.replace_schema_metadata(about), _group(rows, piece))


def _group(rows: int, piece: pa.Table) -> int:
    """Rows of a group: footer and one group, which a reader of one trial needs, are small together."""
    most: int = max(1, _MOST_BYTES * len(piece) // max(1, piece.nbytes))
    return min(max(_LEAST_GROUP, 4 * math.isqrt(rows)), _MOST_GROUP, most)


def replaced(found: pa.Schema) -> list[str]:
    """The files whose rows a merged file holds."""
    names: list[str] = json.loads((found.metadata or {}).get(b"cbe.replaces", b"[]"))
    return names


def _table(name: str, key: tuple[str, ...], required: str, *columns: tuple[str, str]) -> Table:
    must = {*required.split(), *key}
    fields = [pa.field(column, TYPES[kind], nullable=column not in must) for column, kind in columns]
    clash = sorted({column for column, _ in columns if [c for c, _ in columns].count(column) > 1})
    if clash:
        raise RuntimeError(f"table {name}: columns {', '.join(clash)} appear twice")
    before = ("trial", "time") if key == ("id",) else ()
    order = (*(name for name in before if name in dict(columns)), *key)
    return Table(name, 1, key, pa.schema(fields), order)


def _columns(kind: str, names: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names.split()]


TRIALS = _table(
    "trials",
    ("trial",),
    "study revision",
    *_columns("string", "study trial"),
    ("revision", "int64"),
    # role: search or confirm; preset: paper, base or null; state: see states.py;
    # params and config: JSON of the point sampled and of the whole config
    *_columns("string", "role preset state config_id params config"),
    *_columns("int64", "seed label_split"),
    ("split", "string"),  # digest
    ("objective", "float64"),  # the first of
    ("values", "vector"),
    *_columns("int64", "step steps"),
    *((f"{which}_{name}", "float64") for which in SUMMARIES for name in SUMMARIZED),
    *_columns("int64", "best_step parameters macs"),
    *_columns("time", "started updated"),
    *_columns("float64", "wall_s gpu_s cost_usd"),
    *_columns("string", "node device"),
    *_columns("int64", "workers retries"),
    *_columns("string", "versions git_commit error_class error_text checkpoint"),
    ("reused_from", "string"),  # STUDY/TRIAL that was trained in its place
    ("sampler", "string"),  # JSON: what the sampler has noted; see history.py
    ("epoch", "int64"),  # in which it began
    *column_types().items(),
)

METRICS = _table(
    "metrics",
    ("trial", "step"),
    "study revision",
    *_columns("string", "study trial"),
    *_columns("int64", "step revision"),
    *((name, "float64") for name in REPORTED),
    ("thresholds", "vector"),  # per class, mean over heads
    ("wall_s", "float64"),
    ("time", "time"),
    ("epoch", "int64"),
)

CONFUSIONS = _table(
    "confusions",
    ("trial", "step", "kind"),
    "study revision",
    *_columns("string", "study trial"),
    *_columns("int64", "step revision"),
    ("kind", "string"),  # validation or pseudo
    ("matrix", "matrix"),  # rows true, columns predicted
    ("epoch", "int64"),
)

EVENTS = _table(
    "events",
    ("id",),
    "study time kind",
    *_columns("string", "study id"),
    ("time", "time"),
    *_columns("string", "trial kind details"),
    ("epoch", "int64"),
)

SCALING = _table(  # a cluster's machines beside its head, and the trials that have or want one
    "scaling",
    ("id",),
    "study time",
    *_columns("string", "study id"),
    ("time", "time"),
    *_columns("int64", "running pending starting nodes"),
    ("groups", "string"),  # JSON: machines by group
    ("idle_s", "float64"),  # of places that cost and were not used, since the row before
    ("epoch", "int64"),
)

STUDIES = _table(  # of a whole store: see index.py
    "studies",
    ("study",),
    "revision",
    ("study", "string"),
    ("revision", "int64"),
    *_columns("string", "state stamp overview submission"),
)

TABLES = {table.name: table for table in (TRIALS, METRICS, CONFUSIONS, EVENTS, SCALING)}


def build(table: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a table; columns that a row does not give are null, and others than the table's are refused."""
    unknown = sorted({name for row in rows for name in row} - set(table.schema.names))
    if unknown:
        raise ValueError(f"table {table.name} has no column {', '.join(unknown)}")
    return pa.Table.from_pylist(list(rows), schema=table.schema)


def fit(table: Table, name: str, value: Any) -> Any:
    """A value as its column holds it; refuses at once what could only fail when it is written."""
    kind = _KINDS[table.name].get(name)
    if kind is None:
        raise TypeError(f"table {table.name} has no column {name}")
    if value is None or (kind == "float64" and type(value) is float):
        return value
    try:
        return _FITS[kind](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{table.name}.{name}: {value!r} is no {kind}: {error}") from None


def _int(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not -(2**63) <= number < 2**63:
        raise ValueError("wanted a whole number of 64 bits")
    return number


def _float(value: Any) -> float:
    if type(value) in (str, bool):
        raise TypeError("wanted a number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("wanted text")
    return value if value.isascii() else value.encode("utf-8", "replace").decode()  # lone surrogates


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("wanted true or false")
    return value


def _time(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError("wanted a datetime with a time zone")
    return value


def _vector(value: Any) -> list[float | None]:
    return [None if item is None else _float(item) for item in value]


_FITS: dict[str, Callable[[Any], Any]] = {
    "int64": _int,
    "float64": _float,
    "string": _text,
    "bool": _bool,
    "time": _time,
    "vector": _vector,
    "matrix": lambda value: [_vector(row) for row in value],
}
_NAMES = {kind: name for name, kind in TYPES.items()}
_KINDS = {table.name: {field.name: _NAMES[field.type] for field in table.schema} for table in TABLES.values()}
