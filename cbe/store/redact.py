"""Secrets taken out of texts that are kept and shown."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MASK = "***"

_SECRET_NAME = re.compile(
    r"token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential|signature", re.IGNORECASE
)

# Every repetition is bounded, or begins where the one before has ended: a long text takes time in proportion.
_PATTERNS = (
    # user:password@ of an address; a password may hold an @ itself
    (re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)[^/\s\"'<>]*@"), rf"\1{MASK}@"),
    (re.compile(r"(\bauthorization[\"']?[ \t]?[:=][ \t]?[\"']?)[^\"'\r\n]+", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"(\bbearer[ \t])[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1{MASK}"),
    # name=value, name: value, "name": "value", 'name': 'value'
    (
        re.compile(
            rf"((?:{_SECRET_NAME.pattern})[\w.-]{{0,40}}[\"']?[ \t]?[=:][ \t]?)"
            r"(?:\"[^\"\n]{0,5000}\"|'[^'\n]{0,5000}'|[^\s\"'&,;)}\]]+)",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # a token of our own service
    (re.compile(r"\bcbe_[0-9a-f]{8}_[\w-]{20,}"), MASK),
    # AWS: the id of a key, and a secret key, which unlike a git commit mixes small and capital letters
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), MASK),
    (
        re.compile(
            r"(?<![\w/+=])(?=[A-Za-z0-9/+]{40}(?![\w/+=]))"
            r"(?=[^a-z]{0,39}[a-z])(?=[^A-Z]{0,39}[A-Z])(?=\D{0,39}\d)[A-Za-z0-9/+]{40}"
        ),
        MASK,
    ),
)


def redact(text: str) -> str:
    """The text with keys of AWS, values named like secrets, bearer tokens and users in addresses masked.

    >>> redact("GET https://me:pass@host/x?token=abc failed")
    'GET https://***@host/x?token=*** failed'
    """
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return text


def redacted_json(details: dict[str, Any]) -> str:
    """Details as JSON, secrets masked, with text for what JSON cannot hold."""
    return json.dumps(_clean(details))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            str(key): MASK if isinstance(item, str) and _SECRET_NAME.search(str(key)) else _clean(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return redact(str(value))
