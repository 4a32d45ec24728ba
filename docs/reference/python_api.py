"""The Python API, from its docstrings: what `cbe` exports, and what those functions return."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import cbe
import cbe.errors
from cbe.local import StudyRun
from cbe.models.model import Model, Predicted
from cbe.report.best import Answer, Ranked
from cbe.report.results import Results
from cbe.service.clients.service import Client
from docs.reference.comments import comments
from docs.reference.markdown import code, sentence, table

CLASSES = (StudyRun, Results, Answer, Ranked, Client, Model, Predicted)
_EXAMPLE = re.compile(r"\n*^>>> .*", re.DOTALL | re.MULTILINE)


def generate() -> str:
    """Functions, classes with their methods, errors."""
    functions = [_function(f"cbe.{name}", getattr(cbe, name), 3) for name in names()]
    return "\n\n".join(
        [
            "## Functions",
            *functions,
            "## Classes",
            *(_class(each) for each in CLASSES),
            "## Errors",
            f"```text\n{(cbe.errors.__doc__ or '').partition(chr(10))[2].strip()}\n```",
        ]
    )


def names() -> list[str]:
    """The functions that `cbe` exports."""
    return [name for name in sorted(cbe.__all__) if inspect.isfunction(getattr(cbe, name))]


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """What a user may call or read of a class, in the order of the source."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, classmethod | property)):
            yield name, member


def _class(kind: type) -> str:
    parts = [f"### {kind.__module__}.{kind.__name__}", _text(kind)]
    if dataclasses.is_dataclass(kind):
        beside = comments(kind)
        rows = [
            [code(each.name), code(each.type), sentence(beside[each.name])]
            for each in dataclasses.fields(kind)
        ]
        parts.append(table(["field", "type", "meaning"], rows))
    for name, member in methods(kind):
        parts.append(_function(name, getattr(member, "__func__", member), 4))
    return "\n\n".join(part for part in parts if part)


def _function(name: str, function: Callable[..., Any] | property, level: int) -> str:
    if isinstance(function, property):
        signature, text = "", function.fget
    else:
        signature, text = _signature(function), function
    heading = f"{'#' * level} {name}"
    return f"{heading}\n\n```text\n{name}{signature}\n```\n\n{_text(text)}".rstrip()


def _signature(function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    parts = list(_parameters(found))
    returns = f" -> {found.return_annotation}"
    if len(", ".join(parts)) < 60:
        return f"({', '.join(parts)}){returns}"
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _parameters(found: inspect.Signature) -> Iterator[str]:
    """Each parameter as the source has it: annotations are texts there."""
    named_only = False
    for each in found.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not named_only:
            named_only = True
            yield "*"
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"{stars}{each.name}: {each.annotation}{default}"


def _text(documented: Any) -> str:
    """A docstring without its example, which a test runs where it stands."""
    text = _EXAMPLE.sub("", inspect.getdoc(documented) or "")
    if dataclasses.is_dataclass(documented) and text.startswith(f"{documented.__name__}("):
        return ""  # made by dataclass, from the fields below
    return "\n\n".join(sentence(part) for part in text.split("\n\n"))
