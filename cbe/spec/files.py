"""Reading the user's YAML: every fault at once, each with its file and line."""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from cbe.errors import ConfigError, Fault, InputError
from cbe.spec.faults import SETTING, KeyPath, faults_of, where_in
from cbe.spec.yaml_text import parse, scalar

Model = TypeVar("Model", bound=BaseModel)

MAX_BYTES = 1_000_000


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
    lines: dict[KeyPath, int],
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
    return key, scalar(text, f"--set {setting}")


def setting_value(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, float) and "e" in repr(value):
        return f"{value:.20f}".rstrip("0")  # YAML takes 1e-05 for a text
    return json.dumps(value)


def _validated(
    model: type[Model],
    plain: dict[str, Any],
    lines: Mapping[KeyPath, int],
    path: Path | None,
    is_given: bool = True,
) -> Model:
    try:
        return model.model_validate(plain, context={"given": is_given})
    except ValidationError as error:
        raise ConfigError(faults_of(error, model, plain, path, lines)) from None


def read_keys(path: Path) -> set[str]:
    """The sections a file has, whatever they hold."""
    return {str(key) for key in parse(_text(path), path)[0]}


def line_of(path: Path, key: str) -> str:
    """How a fault names a dotted key of a file: with its line where it stands there."""
    return where_in(_place_of(key), path, parse(_text(path), path)[1])


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
