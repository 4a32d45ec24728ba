"""Reading the user's YAML: every fault at once, each with its file and line."""

from __future__ import annotations

import copy
import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from cbe.errors import ConfigError, Fault, InputError
from cbe.spec.suggestions import meant_key, nearest_choice

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MOST_SHOWN = 200  # characters of a value that is wrong
SETTING = 0  # the line of what stands in no file


class Faults(ValueError):
    """What one rule found wrong in several places: each place below the rule's own, problem and hint."""

    def __init__(self, found: Iterable[tuple[Place, str, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(problem for _, problem, _ in self.found))


def read_config(
    model: type[Model],
    path: Path | None = None,
    settings: Iterable[str] = (),
    sections: Mapping[str, str | None] | None = None,
) -> Model:
    """A config from a file, named sections and `key=value` settings, the later over the earlier.

    A relative `data.path` in the file starts at the file's folder, one in a setting at the working directory.

    >>> from cbe.spec import TrainConfig
    >>> read_config(TrainConfig, settings=["ensemble.heads=3"], sections={"method": "uda"}).heads
    3
    """
    plain, lines = parse(_text(path), path) if path else ({}, {})
    if path:
        _anchor(plain, path.parent)
    _overlay(plain, lines, settings, sections or {})
    _anchor(plain, Path.cwd())
    return _validated(model, plain, lines, path)


def read_config_text(
    model: type[Model],
    text: str,
    settings: Iterable[str] = (),
    name: str = "study.yaml",
    folder: Path | None = None,
    is_stored: bool = False,
) -> Model:
    """A config from the text of a file that may not be on this machine; `name` is what faults call it.

    A relative `data.path` starts at `folder`, or stays as it is where none is given. A file of the store may
    have settings that nothing uses: earlier versions accepted them.
    """
    path = Path(name)
    plain, lines = parse(text, path)
    _overlay(plain, lines, settings, {})
    if folder is not None:
        _anchor(plain, folder)
    return _validated(model, plain, lines, path, is_given=not is_stored)


def text_to_send(
    model: type[BaseModel], path: Path, settings: Sequence[str] = (), *, same_machine: bool = True
) -> str:
    """A file for another process: as it stands, or its values where settings or its folder change them.

    A machine elsewhere is told a relative `data.path` as it was typed: it refuses it, and says what to give.
    """
    text = _text(path)
    typed = read_config_text(model, text, settings, str(path))
    meant = read_config(model, path, settings) if same_machine else typed
    if not settings and meant == typed:
        return text
    return yaml.safe_dump(meant.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_values(model: type[Model], values: Mapping[str, Any]) -> Model:
    """A config from values in memory, as of a file in the working directory."""
    plain = copy.deepcopy(dict(values))
    _anchor(plain, Path.cwd())
    return _validated(model, plain, {}, None)


def _anchor(plain: dict[str, Any], folder: Path) -> None:
    """Makes a relative `data.path` absolute: stored so, it means the same from every working directory."""
    data = plain.get("data")
    given = data.get("path") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(given, str) and given and "://" not in given:
        data["path"] = os.path.abspath(folder / os.path.expanduser(given))


def _overlay(
    plain: dict[str, Any],
    lines: dict[Place, int],
    settings: Iterable[str],
    sections: Mapping[str, str | None],
) -> None:
    """Puts named sections and `key=value` settings over a file's values."""
    for name, value in sections.items():
        if value is not None:
            _put(plain, (name,), value, f"--{name}")
            lines[(name,)] = SETTING
    for setting in settings:
        key, value = read_setting(setting)
        place = _place_of(key)
        _put(plain, place, value, f"--set {setting}")
        lines[place] = SETTING


def read_setting(setting: str) -> tuple[str, Any]:
    """The dotted key and the value of a `key=value` setting."""
    key, sign, text = (part.strip() for part in setting.partition("="))
    if not sign or not all(key.split(".")):
        raise ConfigError([Fault(f"--set {setting}", "not of the form key=value", "as training.steps=200")])
    return key, _scalar(text, f"--set {setting}")


def _validated(
    model: type[Model],
    plain: dict[str, Any],
    lines: Mapping[Place, int],
    path: Path | None,
    is_given: bool = True,
) -> Model:
    try:
        return model.model_validate(plain, context={"given": is_given})
    except ValidationError as error:
        raise ConfigError(faults_of(error, model, plain, path, lines)) from None


def read_keys(path: Path) -> set[str]:
    """The sections a file has, whatever stands in them."""
    return {str(key) for key in parse(_text(path), path)[0]}


def line_of(path: Path, key: str) -> str:
    """How a fault names a dotted key of a file: with its line where it stands there."""
    return where_in(_place_of(key), path, parse(_text(path), path)[1])


def faults_of(
    error: ValidationError,
    model: type[BaseModel],
    plain: Any,
    path: Path | None = None,
    lines: Mapping[Place, int] | None = None,
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


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES:,} bytes; this is not a config file")
        return path.read_text("utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.y*ml")], 1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "give the path of a YAML file"
        raise InputError(f"{path}: no such file; {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}); give a YAML file") from None


def parse(text: str, path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """The values of a YAML text and the line of each; `path` is what faults call the text."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = dict(_lines(node)) if node else {}
        plain = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError([Fault(where, f"not valid YAML: {problem}", "correct the syntax there")]) from None
    except RecursionError:
        raise ConfigError([Fault(str(path), "is nested too deeply", "write plain sections")]) from None
    except (ValueError, OverflowError) as error:  # a date that is none, a number of thousands of digits
        raise ConfigError([Fault(str(path), f"holds a value that is none: {error}", "quote it")]) from None
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
        if isinstance(node, yaml.ScalarNode) and not _is_text(node.value):
            raise yaml.MarkedYAMLError(problem="half a character (\\ud800…)", problem_mark=node.start_mark)
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


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, by an escape; nothing could write it down again
        return False
    return True


def _scalar(text: str, where: str) -> Any:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        for _ in _lines(node) if node else ():  # it refuses what a file may not hold either
            pass
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise ConfigError([Fault(where, f"{_short(text)} is not a value", "quote it")]) from None


def _place_of(key: str) -> tuple[str, ...]:
    """Where a dotted key belongs; what is searched is a key of its own, dots and all."""
    first, _, rest = key.partition(".")
    return (first, rest) if first == "search" and rest else tuple(key.split("."))


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
_SHORT = {
    "data": "source",
    "model": "name",
    "ensemble": "kind",
    "method": "name",
    "sampler": "name",
    "scheduler": "name",
    "storage": "store",
}


def _fault(
    item: Mapping[str, Any],
    model: type[BaseModel],
    plain: Any,
    path: Path | None,
    lines: Mapping[Place, int],
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
    return Fault(where, f"{_short(given)}: {message}", nearest_choice(given, message))


def _short(given: Any) -> str:
    try:
        text = repr(given)
    except ValueError:  # a whole number of thousands of digits
        return "a huge number"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _place(loc: Place, plain: Any) -> Place:
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


def where_in(place: Place, path: Path | None, lines: Mapping[Place, int]) -> str:
    """How a fault names a place: its file and line where it stands in one, and its key."""
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
