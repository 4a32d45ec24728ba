"""Short names of columns in SQL: `lr` for `training_lr`, `weights.lb` for `loss_weights_lb`.

A name that DuckDB does not know is replaced at the place that DuckDB gives, if it can mean one column only.
Names that the query itself defines, such as an alias or a column of a subquery, therefore come first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb

from cbe.errors import InputError
from cbe.spec.metrics import on_test
from cbe.spec.search import KEYS
from cbe.spec.suggestions import by_last_name, question
from cbe.store.schema import TABLES

_KEYS = {key.replace(".", "_"): key for key in KEYS}  # by column
_OWN_NAMES = ("name", "kind", "source")  # `method` stands for `method.name`, as in a study file
_UNKNOWN = ("Referenced column ", "Referenced table ")
_UNKNOWN_IN_TABLE = " does not have a column named "


def expand(query: str, error: duckdb.Error, tables: Sequence[str]) -> str | None:
    """The query with the full name of the column that DuckDB did not know; None where that is not the error.

    Refuses a name that several columns may be meant by, or that only resembles one.
    """
    about = details(error)
    message, location = str(about.get("exception_message")), about.get("location")
    in_table = _UNKNOWN_IN_TABLE in message
    if location is None or not (in_table or message.startswith(_UNKNOWN)):
        return None
    start, length = json.loads(location)
    text = query.encode()  # DuckDB counts bytes
    given = text[start : start + length].decode().replace('"', "")
    table, dot, name = given.rpartition(".") if in_table else ("", "", given)
    columns = list(dict.fromkeys(column for each in tables for column in TABLES[each].schema.names))
    if name.lower() in columns:
        return None  # a full name where the query has no such column: DuckDB says what there is
    found = _meant(name, columns)
    if len(found) > 1:
        raise InputError(f"SQL: {name} is ambiguous; {question(found)}")
    if not found:
        similar = _similar(name, columns)
        if similar:
            raise InputError(f"SQL: there is no column {name}; {question(similar)}")
        return None
    return (text[:start] + f"{table}{dot}{found[0]}".encode() + text[start + length :]).decode()


def details(error: duckdb.Error) -> dict[str, Any]:
    """What DuckDB says about an error while `errors_as_json` is set; empty for plain text."""
    try:
        found = json.loads(str(error).partition(": ")[2])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _meant(name: str, columns: Sequence[str]) -> list[str]:
    """The columns of a config that a name is the end of, by whole parts: `heads`, `weights.lb`, `method`."""
    plain = name.lower().replace(".", "_")
    found = [column for column in columns if column in _KEYS and plain in _ends(_KEYS[column])]
    return found or [column for column in columns if column in [f"{plain}_{own}" for own in _OWN_NAMES]]


def _ends(key: str) -> list[str]:
    """
    >>> _ends("loss.weights.lb")
    ['loss_weights_lb', 'weights_lb', 'lb']
    """
    parts = key.split(".")
    return ["_".join(parts[at:]) for at in range(len(parts))]


def _similar(name: str, columns: Sequence[str]) -> list[str]:
    """Other columns that a name may be meant for: `learning_rate`, `validation_error`.

    Test errors are left out: nobody should choose by them because of a suggestion.
    """
    synonyms = [key.partition(", ")[0].replace(".", "_") for key in by_last_name(name, list(KEYS))]
    found = [column for column in columns if column in synonyms or column.endswith(f"_{name.lower()}")]
    return [column for column in found if not on_test(column)]
