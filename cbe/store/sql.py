"""SQL over the tables of a store: one SELECT, answered by DuckDB, which can reach nothing else.

DuckDB is first asked, over empty tables, which columns its plan reads; only those are fetched. Columns may
have short names where these are unambiguous. Files, extensions and Python's variables are closed to it, and
settings are locked: the worst a query can do is to take long and to give much.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cbe.errors import InputError
from cbe.store import conditions
from cbe.store.folder import Store
from cbe.store.schema import TABLES, Table
from cbe.store.short_names import details, expand

MEMORY = "4GB"
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "secret_directory": "none",  # or a query could ask for it, and learn where the user lives
    "python_enable_replacements": "false",  # or a table's name might be one of our variables
    "temp_directory": "",
    "memory_limit": MEMORY,
}
_MOST_SHORT_NAMES = 50  # each costs a plan of the query
_HINT = f"the tables are {', '.join(TABLES)}; `describe trials` lists columns"

Fetch = Callable[[str, Sequence[str], pc.Expression | None], pa.Table]


def select(
    store: Store, query: str, studies: Sequence[str] | None = None, timeout_s: float | None = None
) -> pa.Table:
    """The answer to a query over some studies of a store, over all where none are named."""
    return answer(query, partial(store.table, studies=studies), timeout_s)


def answer(query: str, fetch: Fetch, timeout_s: float | None = None) -> pa.Table:
    """The answer to a query; `fetch` gives the columns and rows of a table that it needs.

    After `timeout_s` it is interrupted, which DuckDB heeds between two batches of rows.
    """
    with _database() as database, _limited(database, timeout_s):
        query, needed, asked = _planned(database, query)
        for name, columns in needed.items():
            table = TABLES[name]
            rows = fetch(name, columns or table.key, conditions.expression(table, asked))
            database.unregister(name)
            database.register(name, _whole(table, rows))
        return _plain(database.sql(query).to_arrow_table())


def columns_read(query: str) -> set[str]:
    """The columns, of whatever table, that answering a query would read."""
    with _database() as database:
        return {column for columns in _planned(database, query)[1].values() for column in columns}


@contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory with all tables, without their rows; its complaints are one line each."""
    with _told(), duckdb.connect(":memory:", config=_CLOSED) as database:
        database.execute("set timezone = 'UTC'")
        # A progress bar would stand among the rows on stdout. Where it is off already, as in Jupyter without
        # ipywidgets, DuckDB refuses to turn it off.
        if database.execute("select current_setting('enable_progress_bar')").fetchone() == (True,):
            database.execute("set enable_progress_bar = false")
        database.execute("set errors_as_json = true")  # they say where in the query they are
        database.execute("set lock_configuration = true")
        for name, table in TABLES.items():
            database.register(name, table.schema.empty_table())
        yield database


def _planned(
    database: duckdb.DuckDBPyConnection, query: str
) -> tuple[str, dict[str, list[str]], conditions.Conditions]:
    """The query with full names of columns, by table the columns it reads, and what it asks of all rows.

    Refuses all but one SELECT.
    """
    kinds = [statement.type.name for statement in database.extract_statements(query)]
    if kinds != ["SELECT"]:
        got = " and ".join(kinds) or "nothing"
        raise InputError(f"SQL: got {got}; wanted one SELECT, which reads and changes nothing; {_HINT}")
    mentioned = [name for name in TABLES if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    if not mentioned:
        return query, {}, {}
    query, plan = _explained(database, query, mentioned)
    read: set[str] = set()
    for node in _nodes(plan):
        if conditions.is_scan(node):
            listed = node["extra_info"]["Projections"]
            read.update([listed] if isinstance(listed, str) else listed)
    needed = {name: [column for column in TABLES[name].schema.names if column in read] for name in mentioned}
    return query, needed, conditions.find(plan)


def _explained(
    database: duckdb.DuckDBPyConnection, query: str, tables: Sequence[str]
) -> tuple[str, list[dict[str, Any]]]:
    """DuckDB's plan of a query, in which short names of columns are replaced one by one."""
    explain = "explain (format json) "
    for _ in range(_MOST_SHORT_NAMES):
        try:
            _, plan = database.execute(explain + query).fetchall()[0]
            return query, json.loads(plan)
        except duckdb.Error as error:
            expanded = expand(explain + query, error, tables)
            if expanded is None:
                raise
            query = expanded.removeprefix(explain)
    raise InputError(f"SQL: more than {_MOST_SHORT_NAMES} short names of columns; write them in full")


def _nodes(plan: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in plan:
        yield node
        yield from _nodes(node.get("children", []))


def _whole(table: Table, rows: pa.Table) -> pa.Table:
    """Fetched columns among all of the table's: a query may name one and yet not need its values."""
    nulls = {kind: pa.nulls(len(rows), kind) for kind in set(table.schema.types)}  # shared: many cost as one
    fields = [field.with_nullable(True) for field in table.schema]
    have = set(rows.column_names)
    columns = [rows[field.name] if field.name in have else nulls[field.type] for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain(found: pa.Table) -> pa.Table:
    """An answer that every format and frame can hold: no name twice, no type of DuckDB's own.

    Sums of whole numbers come as decimals of 38 digits, differences of times as months, days and nanoseconds.
    """
    times: Counter[str] = Counter()
    names, columns = [], []
    for name, column in zip(found.column_names, found.columns, strict=True):
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name}_{times[name] - 1}")
        if pa.types.is_decimal(column.type):
            whole = column.type.scale == 0 and column.type.precision > 18
            column = _cast(column, pa.int64() if whole else pa.float64())
        elif pa.types.is_interval(column.type):
            column = pa.chunked_array([_durations(column.to_pylist())])
        columns.append(column)
    if len(set(names)) < len(names):
        raise InputError(
            f"SQL: two columns are called {Counter(names).most_common(1)[0][0]}; give them names"
        )
    return pa.Table.from_arrays(columns, names=names)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # beyond 64 bits
        return column.cast(pa.float64())


def _durations(values: Sequence[Any]) -> pa.Array:
    """Intervals as durations; a month is no fixed time, and makes all of them texts."""
    if any(value is not None and value.months for value in values):
        return pa.array(
            [None if v is None else f"{v.months} months {v.days} days" for v in values], pa.string()
        )
    micros = [
        None if value is None else value.days * 86_400_000_000 + value.nanoseconds // 1000 for value in values
    ]
    return pa.array(micros, pa.duration("us"))


@contextmanager
def _limited(database: duckdb.DuckDBPyConnection, timeout_s: float | None) -> Iterator[None]:
    """Interrupts what takes longer, again and again: what begins in between does not hear the first time."""
    if timeout_s is None:
        yield
        return
    done, late = threading.Event(), threading.Event()

    def watch() -> None:
        if not done.wait(timeout_s):
            late.set()
            while not done.wait(0.05):
                database.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
        if late.is_set():
            raise duckdb.InterruptException
    except duckdb.InterruptException:
        raise InputError(f"SQL: took longer than {timeout_s:g} s; narrow it, as by `where`") from None
    finally:
        done.set()
        watcher.join()


@contextmanager
def _told() -> Iterator[None]:
    """DuckDB's complaints in one line each."""
    try:
        yield
    except duckdb.PermissionException:
        raise InputError(f"SQL: files and settings are closed to a query; {_HINT}") from None
    except duckdb.OutOfMemoryException:
        raise InputError(
            f"SQL: needs more than {MEMORY} of memory; narrow it with `where` or fewer columns"
        ) from None
    except duckdb.Error as error:
        told = details(error).get("exception_message")
        raise InputError(f"SQL: {_one_line(str(error) if told is None else told)}; {_HINT}") from None


def _one_line(text: str) -> str:
    """What is wrong and, where DuckDB has an idea, what was meant; without its drawing of the place."""
    told = text.partition("\n\nLINE ")[0].replace("Values list", "Table").split("\n")
    kept = [line.strip() for line in told if line.strip() and "pg_" not in line]
    return " ".join(kept).rstrip(" .!")
