"""What a query asks of the trials and studies whose rows it reads, found in DuckDB's plan of it.

A plan has a condition right above the scan of a table, as `((step > 3) AND (trial = 't0001'))`. Whatever it
says elsewhere, a row that fails it changes no answer, and so need not be fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow.compute as pc

from cbe.store.schema import Table

_COLUMNS = ("trial", "study")
_TEXT = r"'((?:[^']|'')*)'"
_PART = re.compile(_TEXT + r"|[()]| AND ")

Node = Mapping[str, Any]  # of a plan
Conditions = Mapping[str, frozenset[str]]  # the values that a column may have


def is_scan(node: Node) -> bool:
    return str(node["name"]).strip().endswith("ARROW_SCAN")


def find(plan: Sequence[Node]) -> Conditions:
    """The values that rows must have in some column to pass any of the plan's scans."""
    scans = [_allowed(said) for said in _said(plan, None)]
    asked = [name for name in _COLUMNS if scans and all(name in scan for scan in scans)]
    return {name: frozenset[str]().union(*(scan[name] for scan in scans)) for name in asked}


def expression(table: Table, conditions: Conditions) -> pc.Expression | None:
    """What can be asked of a table's rows before any of them is read."""
    asked = [
        pc.field(name).isin(sorted(values)) for name, values in conditions.items() if name in table.fixed
    ]
    return reduce(lambda a, b: a & b, asked) if asked else None


def _said(nodes: Sequence[Node], above: str | None) -> Iterator[str | None]:
    """The condition right above each scan."""
    for node in nodes:
        if is_scan(node):
            yield above
        said = node["extra_info"].get("Expression") if str(node["name"]).strip() == "FILTER" else None
        yield from _said(node.get("children", []), said)


def _allowed(said: str | None) -> Conditions:
    found: dict[str, frozenset[str]] = {}
    for part in _conjuncts(said or ""):
        for column in _COLUMNS:
            one = rf"\({column} = {_TEXT}\)"
            if re.fullmatch(rf"{one}|\({one}( OR {one})+\)", part):
                values = frozenset(text.replace("''", "'") for text in re.findall(_TEXT, part))
                found[column] = found.get(column, values) & values
    return found


def _conjuncts(said: str) -> list[str]:
    """The parts of `(a AND b)`; of all else the whole."""
    depth, cuts = 0, [0]
    for match in _PART.finditer(said):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if match[0] == " AND " and depth == 1:
            cuts += [match.start(), match.end()]
        if depth == 0 and match.end() < len(
            said
        ):  # something stands behind the bracket that was opened first
            return [said]
    if len(cuts) == 1:
        return [said]
    cuts[0] = 1
    return [said[a:b] for a, b in zip(cuts[::2], [*cuts[1::2], len(said) - 1], strict=True)]
