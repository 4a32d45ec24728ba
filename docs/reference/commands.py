"""Every command, from the typer application that runs it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from cbe.cli import app
from docs.reference.markdown import code, sentence, table

_CALLED = {int: "whole number", float: "number", Path: "path"}


def generate() -> str:
    """A section for each command, in the order of `cbe --help`."""
    return "\n\n".join(_section(name, command) for name, command in commands())


def commands() -> list[tuple[str, Any]]:
    """All commands by full name, those of groups included."""
    return list(_below("cbe", typer.main.get_command(app)))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for each, inner in command.commands.items():
        yield from _below(f"{name} {each}", inner)


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(_place(each) for each in arguments)])
    parts = [f"## {name}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    if arguments:
        rows = [[code(_metavar(each)), sentence(each.help or "")] for each in arguments]
        parts.append(table(["argument", "is"], rows))
    if options:
        parts.append(table(["option", "does", "value"], [_option(each) for each in options]))
    return "\n\n".join(part for part in parts if part)


def _place(argument: Any) -> str:
    shown = _metavar(argument) + ("…" if argument.nargs == -1 else "")
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


def _metavar(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def _option(option: Any) -> list[str]:
    names = ", ".join(code(each) for each in (*option.opts, *option.secondary_opts))
    notes = [sentence(option.help or "")]
    if option.required:
        notes.append("Required.")
    if option.default not in (None, False) and not callable(option.default):
        notes.append(f"Default: {code(option.default)}.")
    if option.envvar:
        variable = option.envvar if isinstance(option.envvar, str) else option.envvar[0]
        notes.append(f"Environment: {code(variable)}.")
    return [names, " ".join(note for note in notes if note), _value(option)]


def _value(option: Any) -> str:
    if option.is_flag:
        return "–"
    kind = option.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return ", ".join(code(each) for each in get_args(kind))
    return _CALLED.get(kind, "text")
