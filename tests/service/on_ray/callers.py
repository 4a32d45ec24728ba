"""Callers of a service, with a token or an address of their own, and of an application that nobody serves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from tests.service.conftest import Served, bearer

Operation = tuple[str, str]

CHEAP = ("/healthz", "/readyz")
DAY_S = 24 * 3600.0
PUBLIC = "https://studies.example.org"

_numbers = itertools.count(1)


@contextmanager
def client(service: Served, token: str | None = None, **headers: str) -> Iterator[httpx.Client]:
    """A caller from an address of its own, whom nobody else's failures slow down."""
    number = next(_numbers)
    transport = httpx.HTTPTransport(local_address=f"127.1.{number // 250}.{1 + number % 250}", verify=False)
    given = {name: value.encode("latin-1") for name, value in (bearer(token) | headers).items()}
    with httpx.Client(base_url=service.url, transport=transport, headers=given, timeout=30) as found:
        yield found


def operations(service: Served) -> list[Operation]:
    paths: Mapping[str, Mapping[str, Any]] = service.http.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, each in paths.items() for method in each]


def answer(app: FastAPI, path: str, **headers: str) -> httpx.Response:
    """What an application says that nobody serves."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
            return await caller.get(path, headers=headers)

    return asyncio.run(ask())
