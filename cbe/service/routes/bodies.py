"""Study files as they come in: YAML as it is written, or the same values as JSON."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Request

from cbe.errors import InputError
from cbe.service.web.http_errors import Unsupported

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", "")

_EXAMPLE = {
    "name": "heads",
    "question": "How many heads do digits need?",
    "data": {"source": "digits", "labels": 40, "validation": 200},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
    "training": {"steps": 300, "lr": 0.06, "ema": 0.98, "eval_every": 50},
    "search": {"ensemble.heads": {"int": [2, 8]}},
    "budget": {"trials": 12},
}
_STUDY = {
    "schema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    "example": _EXAMPLE,
}

# What OpenAPI is told of such a body.
STUDY_FILE: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/yaml": _STUDY, "application/json": _STUDY}}
}


class Sent(NamedTuple):
    """The text of a study file, as it came."""

    text: str
    is_json: bool = False


def text_of(kind: str, holds: str = "string") -> dict[int | str, dict[str, Any]]:
    """What OpenAPI is told of an answer that is a text; refusals stay JSON."""
    return {200: {"content": {kind: {"schema": {"type": holds}}}}}


async def study_file(request: Request) -> Sent:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("the body is no UTF-8 text; send a study file in YAML or JSON") from None
    if kind == "application/json":
        return Sent(text, is_json=True)
    if kind not in _YAML:
        raise Unsupported(f"Content-Type {kind[:80]!r}: wanted application/yaml or application/json")
    if not text.strip():
        raise InputError("the body is empty; send a study file, as studies/quickstart.yaml")
    return Sent(text)


StudyFile = Annotated[Sent, Depends(study_file)]
