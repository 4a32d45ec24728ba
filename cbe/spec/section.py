"""What all sections of a file have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cbe.spec.registry import Entry

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def named(key: str) -> BeforeValidator:
    """Lets a bare name stand for the section that has only that name: `method: fixmatch`."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


def one_of(registry: Mapping[str, str] | Mapping[str, Entry], what: str, name: str) -> str:
    if name not in registry:
        raise ValueError(f"no {what} of that name; there are {', '.join(registry)}")
    return name
