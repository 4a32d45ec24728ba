"""`cbe query`: SQL over the tables of a store."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbe.cli import stores
from cbe.errors import InputError
from cbe.words import NOTHING, clean

if TYPE_CHECKING:
    import pyarrow as pa


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def command(
    words: Annotated[
        list[str], typer.Argument(metavar="[NAME] SQL", help="A study, or all without one; one SELECT")
    ],
    store: stores.Option = None,
    form: Annotated[Format, typer.Option("--format", help="parquet wants a redirection")] = Format.table,
) -> None:
    """Answer a SELECT over trials, metrics, confusions and events."""
    from cbe.report.results import Results

    if len(words) > 2:
        raise InputError(f"{len(words)} arguments: wanted a study's name, if any, and one SELECT in quotes")
    found = Results(stores.opened(store)).sql(words[-1], words[0] if len(words) > 1 else None)
    _PRINT[form](found)


def _table(found: pa.Table) -> None:
    import pyarrow.types as types

    from cbe.cli.console import out
    from cbe.cli.studies import plain_table
    from cbe.cli.talk import say

    numbers = [name for name in found.column_names if _is_number(found.schema.field(name).type, types)]
    table = plain_table(found.column_names)
    for column, name in zip(table.columns, found.column_names, strict=True):
        if name in numbers:
            column.justify, column.no_wrap = "right", True
    for row in found.slice(0, _MOST).to_pylist():
        table.add_row(*(_cell(row[name]) for name in found.column_names))
    out.print(table)
    if len(found) > _MOST:
        say(f"… {len(found) - _MOST:,} more rows; `limit` them, or write them to a file with --format csv")


def _csv(found: pa.Table) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(found.column_names)
    for batch in found.to_batches(10_000):
        writer.writerows([_plain(value) for value in row.values()] for row in batch.to_pylist())


def _json(found: pa.Table) -> None:
    print(json.dumps(found.to_pylist(), indent=2, default=str))


def _parquet(found: pa.Table) -> None:
    import pyarrow.parquet as pq

    if sys.stdout.isatty():
        raise InputError("--format parquet: is no text; write it to a file, as `… > answer.parquet`")
    pq.write_table(found, sys.stdout.buffer)


_MOST = 200
_PRINT = {Format.table: _table, Format.csv: _csv, Format.json: _json, Format.parquet: _parquet}


def _is_number(kind: Any, types: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _cell(value: Any) -> str:
    from rich.markup import escape

    if value is None:
        return NOTHING
    return escape(clean(f"{value:.6g}" if isinstance(value, float) else _plain(value)))


def _plain(value: Any) -> Any:
    return json.dumps(value, default=str) if isinstance(value, (list, dict)) else value
