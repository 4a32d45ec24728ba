"""The reports of a study's trials, page by page, worked out where they keep nobody else waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from cbe.service.queue.ray_jobs import Jobs
from cbe.service.routes import trials
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from tests.made import finished

NOBODY = "http://127.0.0.1:9"  # where no Ray is


def asked(store: Path, *paths: str) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        service = Service(Store.open(str(store)), Jobs(NOBODY))
        transport = httpx.ASGITransport(create_app(service))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
                return [await caller.get(f"/api/studies/made/metrics{path}") for path in paths]
        finally:
            service.isolated.close()

    return asyncio.run(ask())


def test_the_pages_of_reports_together_are_all_of_them_in_order(tmp_path: Path) -> None:
    made = finished(tmp_path)
    whole = made.folder.table("metrics").sort_by([("trial", "ascending"), ("step", "ascending")]).to_pylist()
    size = -(-len(whole) // 3)
    found = asked(tmp_path, *(f"?limit={size}&offset={start}" for start in range(0, len(whole), size)))
    rows = [row for each in found for row in each.json()["metrics"]]
    assert {each.json()["total"] for each in found} == {len(whole)} and len(found) == 3
    key = ("trial", "step", "validation_error")
    assert [[row[name] for name in key] for row in rows] == [[row[name] for name in key] for row in whole]
    assert [row["time"] for row in rows] == [row["time"].isoformat() for row in whole]
    assert not {"study", "revision"} & rows[0].keys()
    (one,) = asked(tmp_path, "?trial=t0001")
    assert one.json()["metrics"] == [row for row in rows if row["trial"] == "t0001"] != []


def test_reports_that_take_too_long_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path)
    monkeypatch.setattr(trials, "METRICS_S", 0.0)
    (found,) = asked(tmp_path, "")
    assert found.status_code == 422 and "took longer than 0 s" in found.json()["message"]
