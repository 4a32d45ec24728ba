"""`cbe query`: SQL over the tables of a store."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbe.cli import backends, stores
from cbe.errors import InputError
from cbe.words import NOTHING, clean, finite, plural

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


_MAX_ROWS = 200  # rows on a screen
_MOST_RECORDS = 10  # rows on a screen where each takes many lines
_MANY = 12  # columns; an answer with more of them was hardly typed column by column
_WIDE = 10_000  # columns of text where nobody looks: a file has no width


def command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[NAME] SQL", help="A study (default: all) and one SELECT statement."),
    ],
    store: stores.Option = None,
    address: backends.Address = None,
    form: Annotated[
        Format, typer.Option("--format", help="Output format. Redirect parquet to a file.")
    ] = Format.table,
) -> None:
    """Query the tables trials, metrics, confusions, events and scaling with SQL.

    Short names of columns work where they are unambiguous: lr for training_lr, heads for ensemble_heads.
    """
    import pyarrow as pa

    study, query = _asked(words)
    found = backends.opened(store, address).sql(query, study)
    try:
        _PRINT[form](found)
    except (
        OverflowError,
        ValueError,
        pa.ArrowException,
    ) as error:  # odd dates, types
        raise InputError(
            f"--format {form.value}: cannot hold this answer ({error}); cast what is odd, as by `::varchar`"
        ) from None


def _asked(words: list[str]) -> tuple[str | None, str]:
    """The study and the query out of what was typed."""
    form = 'cbe query [NAME] "select …"'
    if len(words) > 2:
        raise InputError(f"{len(words)} arguments: wanted a study's name, if any, and one SELECT: {form}")
    if len(words) == 1:
        if re.fullmatch(r"[\w.-]*", words[0]):
            raise InputError(
                f"{words[0]}: is no SQL; wanted a SELECT, behind a study's name or alone: {form}"
            )
        return None, words[0]
    if " " in words[0] and " " not in words[1]:
        raise InputError(f"{words[1]}: stands behind the SQL; wanted the study's name first: {form}")
    return words[0], words[1]


def _table(found: pa.Table) -> None:
    from rich.console import Console

    from cbe.cli.console import out, say

    rows = _rows(found.slice(0, _MAX_ROWS))
    table = _grid(found, rows)
    console = out if out.is_terminal else Console(width=_WIDE)
    shown = _MAX_ROWS
    if console.measure(table, options=console.options.update(max_width=_WIDE)).maximum > console.width:
        shown = _MOST_RECORDS
        _print_records(found, shown)
    else:
        console.print(table)
    if len(found) > shown:
        left = plural(len(found) - shown, "more row")
        say(f"… {left}; select fewer columns, `limit` the rows, or write them to a file with --format csv")


def _grid(found: pa.Table, rows: list[list[Any]]) -> Table:
    from pyarrow import types
    from rich.text import Text

    from cbe.cli.study_view import plain_table

    table = plain_table(["" for _ in found.column_names])
    for column, field in zip(table.columns, found.schema, strict=True):
        column.header, column.no_wrap = Text(clean(field.name)), True
        if types.is_integer(field.type) or types.is_floating(field.type):
            column.justify = "right"
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def _print_records(found: pa.Table, most: int) -> None:
    """One line a value: for answers that are wider than the screen."""
    from rich.table import Table
    from rich.text import Text

    from cbe.cli.console import out, say

    left_out = _unreadable(found) if found.num_columns > _MANY else []
    shown = found.slice(0, most).drop_columns(left_out)
    for number, row in enumerate(_rows(shown), start=1):
        out.print(Text(f"row {number}", "bold"))
        grid = Table.grid(padding=(0, 2))
        for name, value in zip(shown.column_names, row, strict=True):
            grid.add_row(Text(f"  {clean(name)}"), Text(_cell(value)))
        out.print(grid)
    if left_out:
        say(f"Not shown because they are empty or JSON: {', '.join(left_out)}. Select them by name.")


def _unreadable(found: pa.Table) -> list[str]:
    """The columns that hold nothing or JSON."""

    def tells_nothing(column: pa.ChunkedArray) -> bool:
        values = (each.as_py() for each in column)  # one by one: the first that tells something is enough
        return all(value is None or (isinstance(value, str) and value[:1] in ("{", "[")) for value in values)

    columns = zip(found.column_names, found.columns, strict=True)
    return [name for name, column in columns if tells_nothing(column)]


def _csv(found: pa.Table) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(found.column_names)
    for part in _parts(found):
        writer.writerows([_text(value) for value in row] for row in _rows(part))


def _json(found: pa.Table) -> None:
    rows = [dict(zip(found.column_names, map(finite, row), strict=True)) for row in _rows(found)]
    print(json.dumps(rows, indent=2, default=str, allow_nan=False))


def _parquet(found: pa.Table) -> None:
    import pyarrow.parquet as pq

    if sys.stdout.isatty():
        raise InputError("--format parquet: is no text; write it to a file, as `… > answer.parquet`")
    pq.write_table(found, sys.stdout.buffer)


_PRINT = {Format.table: _table, Format.csv: _csv, Format.json: _json, Format.parquet: _parquet}


def _rows(found: pa.Table) -> list[list[Any]]:
    columns = [column.to_pylist() for column in found.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _parts(found: pa.Table, size: int = 10_000) -> Iterator[pa.Table]:
    for start in range(0, len(found), size):
        yield found.slice(start, size)


def _cell(value: Any) -> str:
    """A value as a person reads it, lists of numbers included."""
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(_cell(each) for each in value)}]"
    return clean(_text(value))


def _text(value: Any) -> Any:
    return json.dumps(finite(value), default=str) if isinstance(value, (list, dict)) else value
