"""What is wrong with a config: each fault with its place, its line, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from cbe.errors import Fault
from cbe.spec.suggestions import meant_key, nearest_choice

KeyPath = tuple[str | int, ...]
Finding = tuple[KeyPath, str, str]  # where, what is wrong, what to do next
MOST_SHOWN = 200  # characters of a value that is wrong
SETTING = 0  # the line of a setting, which is in no file


class Faults(ValueError):
    """What one rule found wrong in several places: each place below the rule's own, problem and hint."""

    def __init__(self, found: Iterable[Finding]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(problem for _, problem, _ in self.found))


def faults_of(
    error: ValidationError,
    model: type[BaseModel],
    plain: Any,
    path: Path | None = None,
    lines: Mapping[KeyPath, int] | None = None,
) -> list[Fault]:
    """What pydantic found wrong with plain values, each with its place in the file where there is one."""
    found: list[Fault] = []
    for item in error.errors(include_url=False):
        rule = item.get("ctx", {}).get("error")
        if isinstance(rule, Faults):
            below = _place(item["loc"], plain)
            found += [
                Fault(where_in((*below, *place), path, lines or {}), problem, hint)
                for place, problem, hint in rule.found
            ]
        else:
            found.append(_fault(item, model, plain, path, lines or {}))
    return _merged(found)


def _fault(
    item: Mapping[str, Any],
    model: type[BaseModel],
    plain: Any,
    path: Path | None,
    lines: Mapping[KeyPath, int],
) -> Fault:
    place = _place(item["loc"], plain)
    message = str(item["msg"]).removeprefix("Value error, ")
    about, _, rest = message.partition(": ")
    if not place and rest and re.fullmatch(r"[a-z_.]+", about):  # a rule between sections names its key
        place, message = tuple(about.split(".")), rest
    where = where_in(place, path, lines)
    if item["type"] == "extra_forbidden":
        return Fault(where, "unknown key", meant_key(model, place))
    if item["type"] == "missing":
        return Fault(where, "is missing", "add it")
    message = message[0].lower() + message[1:]
    given = item["input"]
    if isinstance(given, (dict, BaseModel)):  # a rule about a whole section names its keys itself
        return Fault(where, message)
    return Fault(where, f"{shortened(given)}: {message}", nearest_choice(given, message))


def shortened(given: Any) -> str:
    try:
        text = repr(given)
    except ValueError:  # a whole number of thousands of digits
        return "a huge number"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _place(loc: KeyPath, plain: Any) -> KeyPath:
    """Where in the user's values pydantic's place is: without the branches of unions and of short forms."""
    place: list[str | int] = []
    here = plain
    for part in loc:
        if part in (here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()):
            here = here[part]
        elif isinstance(part, int) != isinstance(here, list) or _is_a_union_branch(part):
            continue
        else:
            here = None
        place.append(part)
    return tuple(place)


def where_in(place: KeyPath, path: Path | None, lines: Mapping[KeyPath, int]) -> str:
    """How a fault names a place: its file and line, where there are any, and its key."""
    key = ".".join(str(part) for part in place)
    line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    if path is None or line == SETTING:
        return key
    return f"{path} {key}" if line is None else f"{path}:{line} {key}"


def _merged(faults: list[Fault]) -> list[Fault]:
    """One fault a place: a value that may be of several kinds fails each of them by one mistake."""
    merged: dict[str, Fault] = {}
    for fault in faults:
        first = merged.get(fault.where)
        joined = f"{first.problem} or {fault.problem.rpartition(': ')[2]}" if first else fault.problem
        merged[fault.where] = replace(fault, problem=joined)
    return list(merged.values())


def _is_a_union_branch(part: str | int) -> bool:
    """pydantic names the branch of a union it tried in the place: `int`, `literal['all']`."""
    return part in ("bool", "int", "float", "str") or "[" in str(part) or "constrained" in str(part)
