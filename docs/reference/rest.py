"""Every route of the service, from its OpenAPI description."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cbe.service.queue.ray_jobs import Jobs
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from docs.reference.markdown import code, sentence, table

NO_RAY = "http://127.0.0.1:9"  # nothing is asked of it


def generate() -> str:
    """A table of all routes, then each with its parameters and answers, then the objects."""
    found = list(routes())
    index = [[code(f"{method} {path}"), _prose(each)] for method, path, each in found]
    return "\n\n".join(
        [
            f"## All routes\n\n{table(['route', 'does'], index)}",
            f"## Refusals\n\nEvery route may refuse, with a [Problem](#problem).\n\n{_refusals(found[0][2])}",
            *(_section(*each) for each in found),
            "## Objects",
            *_objects(),
        ]
    )


def routes() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Method, path and description."""
    for path, methods in description()["paths"].items():
        for method, each in methods.items():
            yield method.upper(), path, each


@cache
def description() -> dict[str, Any]:
    """As a running service tells it at /openapi.json."""
    with tempfile.TemporaryDirectory() as folder:
        plain: dict[str, Any] = create_app(Service(Store.open(folder), Jobs(NO_RAY))).openapi()
    return plain


def _section(method: str, path: str, about: Mapping[str, Any]) -> str:
    parts = [f"## {method} {path}", _prose(about)]
    if rows := [_parameter(each) for each in about.get("parameters", [])]:
        parts.append(table(["parameter", "in", "type", "meaning"], rows))
    if body := about.get("requestBody"):
        parts.append(f"Body: {_bodies(body)}.")
    parts += [f"Answers {code(status)}: {_bodies(each)}." for status, each in _answers(about, "23")]
    return "\n\n".join(part for part in parts if part)


def _prose(about: Mapping[str, Any]) -> str:
    return sentence(about.get("description") or about.get("summary", ""))


def _parameter(about: Mapping[str, Any]) -> list[str]:
    schema = about.get("schema", {})
    default = f" Default: {code(schema['default'])}." if schema.get("default") not in (None, "") else ""
    name = f"{code(about['name'])}{' (required)' if about.get('required') else ''}"
    return [name, about["in"], _type(schema), f"{sentence(about.get('description', ''))}{default}".strip()]


def _answers(about: Mapping[str, Any], first: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(status, each) for status, each in about["responses"].items() if status[0] in first]


def _refusals(about: Mapping[str, Any]) -> str:
    rows = [[code(status), sentence(each["description"])] for status, each in _answers(about, "45")]
    return table(["status", "when"], rows)


def _bodies(about: Mapping[str, Any]) -> str:
    kinds = [f"{code(kind)}{_of(each)}" for kind, each in about.get("content", {}).items()]
    return " or ".join(kinds) or "nothing"


def _of(content: Mapping[str, Any]) -> str:
    named = _type(content.get("schema", {}))
    return f", {named}" if named.startswith("[") else ""


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(code(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any value"))


def _objects() -> Iterator[str]:
    """What is sent and answered."""
    for name, schema in sorted(description()["components"]["schemas"].items()):
        required = schema.get("required", [])
        rows = [
            [code(key), _type(each), "yes" if key in required else "no"]
            for key, each in schema.get("properties", {}).items()
        ]
        parts = [f"### {name}", sentence(schema.get("description", ""))]
        parts.append(table(["key", "type", "required"], rows) if rows else _type(schema))
        yield "\n\n".join(part for part in parts if part)
