"""YAML as users may write it: its values, and the line of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from cbe.errors import ConfigError, Fault
from cbe.spec.faults import KeyPath, shortened


def parse(text: str, path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
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


def _lines(node: yaml.Node, place: KeyPath = ()) -> Iterable[tuple[KeyPath, int]]:
    """The line of every key and list item; refuses keys given twice, and aliases, which can hide a flood."""
    seen: set[int] = set()
    stack: list[tuple[yaml.Node, KeyPath]] = [(node, place)]
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


def scalar(text: str, where: str) -> Any:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        for _ in _lines(node) if node else ():  # it refuses what a file may not hold either
            pass
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise ConfigError([Fault(where, f"{shortened(text)} is not a value", "quote it")]) from None
