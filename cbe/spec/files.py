"""Reading the user's YAML: every fault at once, each with its file and line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from cbe.errors import ConfigError, Fault, InputError

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[str | int, ...]

MAX_BYTES = 1_000_000
SETTING = 0  # the line of what stands in no file


def read_config(
    model: type[Model],
    path: Path | None = None,
    settings: Iterable[str] = (),
    sections: Mapping[str, str | None] | None = None,
) -> Model:
    """A config from a file, named sections and `key=value` settings, the later over the earlier.

    >>> from cbe.spec import TrainConfig
    >>> read_config(TrainConfig, settings=["ensemble.heads=3"], sections={"method": "uda"}).heads
    3
    """
    plain, lines = _read(path) if path else ({}, {})
    for name, value in (sections or {}).items():
        if value is not None:
            _put(plain, (name,), value, f"--{name}")
            lines[(name,)] = SETTING
    for setting in settings:
        key, sign, text = (part.strip() for part in setting.partition("="))
        if not sign or not key:
            raise ConfigError(
                [Fault(f"--set {setting}", "not of the form key=value", "as training.steps=200")]
            )
        _put(plain, tuple(key.split(".")), _scalar(text, f"--set {setting}"), f"--set {setting}")
        lines[tuple(key.split("."))] = SETTING
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        faults = [_fault(item, model, path, lines) for item in error.errors(include_url=False)]
        raise ConfigError(_merged(faults)) from None


def _read(path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES:,} bytes; this is not a config file")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.y*ml")], 1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "give the path of a YAML file"
        raise InputError(f"{path}: no such file; {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}); give a YAML file") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = dict(_lines(node)) if node else {}
        plain = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError([Fault(where, f"not valid YAML: {problem}", "mend the syntax there")]) from None
    if not isinstance(plain, dict):
        raise ConfigError([Fault(f"{path}:1", "a list or a single value", "write `key: value` lines")])
    # A section with nothing below it says nothing.
    return {name: section for name, section in plain.items() if section is not None}, lines


def _lines(node: yaml.Node, place: Place = ()) -> Iterable[tuple[Place, int]]:
    """The line of every key and list item; refuses keys given twice, and aliases, which can hide a flood."""
    seen: set[int] = set()
    stack: list[tuple[yaml.Node, Place]] = [(node, place)]
    while stack:
        node, place = stack.pop()
        if id(node) in seen and not isinstance(node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=node.start_mark)
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else "?"
                if name in keys:
                    raise yaml.MarkedYAMLError(problem=f"{name} is given twice", problem_mark=key.start_mark)
                keys.add(name)
                here = (*place, name)
                yield here, key.start_mark.line + 1
                stack.append((value, here))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                yield (*place, index), value.start_mark.line + 1
                stack.append((value, (*place, index)))


def _scalar(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError([Fault(where, f"{text!r} is not a value", "quote it")]) from None


def _put(plain: dict[str, Any], place: tuple[str, ...], value: Any, where: str) -> None:
    for key in place[:-1]:
        inner = plain.setdefault(key, {})
        if isinstance(inner, str):  # `method: fixmatch` stands for its section
            inner = plain[key] = {_SHORT[key]: inner} if key in _SHORT else inner
        if not isinstance(inner, dict):
            raise ConfigError([Fault(where, f"{key} is a value, not a section", "set it as a whole")])
        plain = inner
    old = plain.get(place[-1])
    if isinstance(old, dict) and isinstance(value, str) and place[-1] in _SHORT:
        key = _SHORT[place[-1]]
        # Another method or ensemble has other settings; another network or data source keeps the rest.
        other = place[-1] in ("method", "ensemble") and old.get(key, value) != value
        value = {key: value} if other else old | {key: value}
    plain[place[-1]] = value


# Sections that a bare name can stand for, and the key it is then the value of.
_SHORT = {"data": "source", "model": "name", "ensemble": "kind", "method": "name"}


def _fault(
    item: Mapping[str, Any], model: type[BaseModel], path: Path | None, lines: dict[Place, int]
) -> Fault:
    place: Place = tuple(part for part in item["loc"] if not _is_a_union_branch(part))
    message = str(item["msg"]).removeprefix("Value error, ")
    if not place:  # a rule between sections begins with the key it is about
        named, _, message = message.partition(": ")
        place = tuple(named.split("."))
    key = ".".join(str(part) for part in place)
    line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    where = f"{path}:{line} {key}" if path and line else key
    if item["type"] == "extra_forbidden":
        allowed = _keys(model, place[:-1])
        near = difflib.get_close_matches(str(place[-1]), allowed, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(allowed)}"
        return Fault(where, "unknown key", hint)
    message = message[0].lower() + message[1:]
    given = item["input"]
    if isinstance(given, (dict, BaseModel)):  # a rule about a whole section names its keys itself
        return Fault(where, message)
    return Fault(where, f"{given!r}: {message}", _nearest_choice(given, message))


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
    return isinstance(part, str) and (part in ("int", "float", "str") or "[" in part or "constrained" in part)


def _keys(model: type[BaseModel], place: Place) -> list[str]:
    for part in place:
        inner = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def _nearest_choice(given: Any, message: str) -> str:
    if not isinstance(given, str):
        return ""
    choices = message.replace("'", " ").replace(",", " ").split()
    near = difflib.get_close_matches(given, choices, 1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else ""
