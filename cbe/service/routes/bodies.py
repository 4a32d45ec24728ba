"""Study files as they come in: YAML as it is written, or the same values as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import yaml
from fastapi import Depends, Request

from cbe.errors import InputError

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", "")

# What OpenAPI is told of such a body.
STUDY_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}


async def study_text(request: Request) -> str:
    """The text of a study file; one that came as JSON is written as YAML."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("the body is no UTF-8 text; send a study file in YAML or JSON") from None
    if kind == "application/json":
        return _from_json(text)
    if kind not in _YAML:
        raise InputError(f"Content-Type {kind[:80]!r}: wanted application/yaml or application/json")
    if not text.strip():
        raise InputError("the body is empty; send a study file, as studies/quickstart.yaml")
    return text


def _from_json(text: str) -> str:
    try:
        plain = json.loads(text)
        if not isinstance(plain, dict):
            raise InputError(f"the body is a {type(plain).__name__}; wanted an object with a study's keys")
        return yaml.safe_dump(plain, sort_keys=False)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not valid JSON ({error}); mend it, or send YAML") from None


StudyText = Annotated[str, Depends(study_text)]
