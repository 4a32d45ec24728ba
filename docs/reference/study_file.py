"""Every key of a study file, from the models that check it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from cbe.spec import Parameter, StudyConfig
from cbe.spec.backbones import BACKBONES
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.methods import METHODS
from cbe.spec.parameters import KINDS
from cbe.spec.registry import SOURCES
from docs.reference.comments import comments
from docs.reference.markdown import code, sentence, table

REGISTERED: dict[str, Iterable[str]] = {
    "data.source": SOURCES,
    "model.name": BACKBONES,
    "ensemble.kind": ENSEMBLES,
    "method.name": METHODS,
}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_MOST = 10**9  # larger bounds only keep numbers sane
_CALLED = {"string": "text", "boolean": "`true` or `false`", "integer": "whole number"}


def generate() -> str:
    """The sections of a study file, each with its keys."""
    top, sections = [], []
    for key, model in _sections(StudyConfig):
        rows = [_row(key, model, name) for name, kind in _fields(model) if not _model(kind)]
        if model is StudyConfig:
            top = rows
        elif rows:
            sections.append(f"## {key}\n\n{_about(model)}\n\n{_table(rows)}")
    return "\n\n".join(
        [
            f"## The study itself\n\n{_table(top)}",
            *sections,
            f"## Parameters of a search\n\n{_about(Parameter)}\n\n{_table(_parameter_rows())}",
        ]
    )


def _parameter_rows() -> list[list[str]]:
    """Each key once: those that list values, those of some kinds, and those of all."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        for key, meaning, allowed, default in (_row("", kind, name) for name in kind.model_fields):
            known = found[key][2].split(" or ") if key in found else []
            allowed = " or ".join(sorted(dict.fromkeys([*known, *allowed.split(" or ")]), key="null".__eq__))
            found[key] = [key, meaning, allowed, "–" if key == code(kind.kind) else default]
    first = [code(kind.kind) for kind in KINDS]
    last = [code(name) for name in Parameter.model_fields]
    return [found[key] for key in (*first, *(key for key in found if key not in first + last), *last)]


def keys() -> list[str]:
    """All dotted keys of a study file."""
    return [
        _dotted(key, name)
        for key, model in _sections(StudyConfig)
        for name, kind in _fields(model)
        if not _model(kind)
    ]


def _sections(model: type[BaseModel], key: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    yield key, model
    for name, kind in _fields(model):
        if inner := _model(kind):
            yield from _sections(inner, _dotted(key, name))


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    return ((name, field.annotation) for name, field in model.model_fields.items())


def _model(kind: Any) -> type[BaseModel] | None:
    """The section behind an annotation, also behind a list of it: `objective` may be several."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return None if kind is Parameter else kind
    found = (_model(each) for each in get_args(kind) if each is not Parameter)
    return next((each for each in found if each), None)


def _row(key: str, model: type[BaseModel], name: str) -> list[str]:
    field = model.model_fields[name]
    shown = field.alias or name
    dotted = _dotted(key, shown)
    default = "required" if field.is_required() else _plain(field.default)
    return [code(dotted), sentence(comments(model)[name]), _allowed(dotted, model, shown), default]


def _table(rows: list[list[str]]) -> str:
    return table(["key", "meaning", "value", "default"], rows)


def _about(model: type[BaseModel]) -> str:
    return sentence(model.__doc__ or "")


def _dotted(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _plain(value: Any) -> str:
    if value is PydanticUndefined or value == {}:
        return "–"
    if value is None:
        return "null"
    return code(value if isinstance(value, str) and value else json.dumps(value))


def _allowed(dotted: str, model: type[BaseModel], name: str) -> str:
    if dotted in REGISTERED:
        return _choices(REGISTERED[dotted])
    return _type(model.model_json_schema()["properties"][name])


def _type(schema: Mapping[str, Any]) -> str:
    """What a JSON schema allows, as a person says it."""
    if "anyOf" in schema:
        kinds = dict.fromkeys(map(_type, schema["anyOf"]))
        return " or ".join(sorted(kinds, key="null".__eq__))
    if "enum" in schema or "const" in schema:
        return _choices(schema.get("enum", [schema.get("const")]))
    if "$ref" in schema:
        return "a [parameter](#parameters-of-a-search)"
    kind = schema.get("type", "any value")
    if kind == "array":
        pair = schema.get("prefixItems")
        return f"[low, high], each a {_type(pair[0])}" if pair else f"list: {_type(schema['items'])}"
    if kind == "object":
        return f"for each key {_type(schema['additionalProperties'])}"
    bounds = [f"{sign} {schema[name]:,}" for name, sign in _BOUNDS.items() if schema.get(name, _MOST) < _MOST]
    return " ".join([_CALLED.get(kind, kind), ", ".join(bounds)]).strip()


def _choices(values: Iterable[Any]) -> str:
    return ", ".join(code(each) for each in values)
