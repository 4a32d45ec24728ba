"""Requests that are made to break a service, and the form of their refusals."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.service.conftest import Served
from tests.service.on_ray.hostile_inputs import (
    Text,
)

UNREADABLE = "Invalid HTTP request received."  # uvicorn's own answer to what is not HTTP
SOON_S = 60.0  # also on a machine that has other things to do


def beside(service: Served) -> list[Path]:
    """All that is around the store, where the service works."""
    place = service.store.parent
    return sorted(path for path in place.rglob("*") if service.store not in path.parents)


def refused(found: httpx.Response, *codes: int) -> dict[str, Any]:
    """The refusal, after a look at its form."""
    assert 400 <= found.status_code < 500, (found.status_code, found.text[:500])
    assert not codes or found.status_code in codes, (found.status_code, found.text[:500])
    if found.text == UNREADABLE:
        assert found.status_code == 400
        return {}
    plain: dict[str, Any] = found.json()
    assert set(plain) == {"message", "faults"} and plain["message"], plain
    for fault in plain["faults"]:
        assert set(fault) == {"where", "line", "key", "problem", "hint"}
    return plain


def quoted(name: str) -> str:
    """Every byte of a name as a percent sign and two digits."""
    return "".join(f"%{byte:02x}" for byte in name.encode())


def raw(service: Served, *lines: bytes, body: bytes = b"") -> httpx.Response:
    """What is answered to a request that no library would send."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=SOON_S) as line:
        host = f"host: 127.0.0.1:{service.port}".encode()
        line.sendall(b"\r\n".join([lines[0], host, b"connection: close", *lines[1:], b"", body]))
        answer = b""
        while part := line.recv(65536):
            answer += part
    top, _, content = answer.partition(b"\r\n\r\n")
    return httpx.Response(int(top.split()[1]), content=content)


def posted(service: Served, path: str, text: Text, kind: str = "application/yaml") -> httpx.Response:
    return service.http.post(path, content=text, headers={"content-type": kind}, timeout=SOON_S)


def all_posted(service: Served, path: str, texts: Mapping[str, Text]) -> dict[str, httpx.Response]:
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda text: posted(service, path, text), texts.values())
        return dict(zip(texts, found, strict=True))


def asked(service: Served, *queries: str) -> dict[str, httpx.Response]:
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda query: service.http.post("/api/sql", json={"query": query}), queries)
        return dict(zip(queries, found, strict=True))


def studies(service: Served) -> set[str]:
    return {each["study"] for each in service.http.get("/api/studies").json()["studies"]}


def memory_mb(service: Served) -> float:
    """The most that the service itself ever held."""
    told = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", told)
    assert found
    return int(found[1]) / 1000
