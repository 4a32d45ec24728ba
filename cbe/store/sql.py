"""SQL over the tables of a store: one SELECT, answered by DuckDB, which can reach nothing else.

DuckDB is first asked, over empty tables, which columns its plan reads; only those are fetched. Files,
settings, extensions and Python's variables are closed to it: the worst a query can do is to take long.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from cbe.errors import InputError
from cbe.store.folder import Store
from cbe.store.schema import TABLES, Table

MEMORY = "4GB"
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # or a table's name might be one of our variables
    "temp_directory": "",
    "memory_limit": MEMORY,
}
_HINT = f"the tables are {', '.join(TABLES)}; `describe trials` tells columns"

Fetch = Callable[[str, Sequence[str]], pa.Table]


def select(
    store: Store, query: str, studies: Sequence[str] | None = None, timeout_s: float | None = None
) -> pa.Table:
    """The answer to a query over some studies of a store, over all where none are named."""
    return answer(query, lambda table, columns: store.table(table, columns, studies=studies), timeout_s)


def answer(query: str, fetch: Fetch, timeout_s: float | None = None) -> pa.Table:
    """The answer to a query; `fetch` gives the columns of a table that it needs."""
    with _told(timeout_s), duckdb.connect(":memory:", config=_CLOSED) as database:
        database.execute("set timezone = 'UTC'")
        database.execute("set lock_configuration = true")
        for name, table in TABLES.items():
            database.register(name, table.schema.empty_table())
        _refuse_all_but_one_select(database, query)
        read = _columns_read(database, query)
        for name, table in TABLES.items():
            database.unregister(name)
            if re.search(rf"\b{name}\b", query, re.IGNORECASE):
                columns = [column for column in table.schema.names if column in read]
                database.register(name, _whole(table, fetch(name, columns or table.key)))
        with _limited(database, timeout_s):
            return database.sql(query).to_arrow_table()


def _whole(table: Table, rows: pa.Table) -> pa.Table:
    """Fetched columns among all of the table's: a query may name one and yet not need its values."""
    nulls = {kind: pa.nulls(len(rows), kind) for kind in set(table.schema.types)}  # shared: many cost as one
    fields = [field.with_nullable(True) for field in table.schema]
    have = set(rows.column_names)
    columns = [rows[field.name] if field.name in have else nulls[field.type] for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _refuse_all_but_one_select(database: duckdb.DuckDBPyConnection, query: str) -> None:
    statements = database.extract_statements(query)
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        got = " and ".join(kinds) or "nothing"
        raise InputError(f"SQL: got {got}; wanted one SELECT, which reads and changes nothing; {_HINT}")


def _columns_read(database: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """The columns that the plan reads, of whatever table."""
    _, plan = database.execute(f"explain (format json) {query}").fetchall()[0]
    found: set[str] = set()
    for node in _nodes(json.loads(plan)):
        if node["name"].strip().endswith("ARROW_SCAN"):
            listed = node["extra_info"]["Projections"]
            found.update([listed] if isinstance(listed, str) else listed)
    return found


def _nodes(plan: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in plan:
        yield node
        yield from _nodes(node.get("children", []))


@contextmanager
def _limited(database: duckdb.DuckDBPyConnection, timeout_s: float | None) -> Iterator[None]:
    """Interrupts a query that takes longer."""
    if timeout_s is None:
        yield
        return
    timer = threading.Timer(timeout_s, database.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def _told(timeout_s: float | None) -> Iterator[None]:
    """DuckDB's complaints in one line each."""
    try:
        yield
    except duckdb.InterruptException:
        raise InputError(f"SQL: took longer than {timeout_s:g} s; narrow it, as by `where`") from None
    except duckdb.PermissionException:
        raise InputError(f"SQL: files and settings are closed to a query; {_HINT}") from None
    except duckdb.OutOfMemoryException:
        raise InputError(
            f"SQL: needs more than {MEMORY} of memory; narrow it with `where` or fewer columns"
        ) from None
    except duckdb.Error as error:
        raise InputError(f"SQL: {_one_line(str(error))}; {_HINT}") from None


def _one_line(text: str) -> str:
    """What is wrong and, where DuckDB has an idea, what was meant; without its drawing of the place."""
    told = text.partition("\n\nLINE ")[0].split("\n")
    kept = [line.strip() for line in told if line.strip() and "pg_" not in line]
    return " ".join(kept).rstrip(" .!")
