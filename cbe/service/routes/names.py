"""Names and numbers in addresses, as OpenAPI describes and checks them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

Study = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="The study's name", examples=["quickstart"])
]
Trial = Annotated[str, Path(pattern=r"^[ct][0-9]{4,12}$", description="The trial's name", examples=["t0001"])]
TrialQuery = Annotated[str | None, Query(pattern=r"^[ct][0-9]{4,12}$", description="A trial's name")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=10**9)]
Text = Annotated[str | None, Query(max_length=200)]
Condition = Annotated[str | None, Query(max_length=10_000, description="A condition in SQL")]
Many = Annotated[int, Query(ge=1, le=1000, description="How many configs")]
