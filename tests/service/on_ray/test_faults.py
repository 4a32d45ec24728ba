"""The service, a driver and the whole cluster are killed: nothing is lost, and what can go on does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cbe.processes import BackgroundProcess
from cbe.service.queue.embedded_ray import started
from cbe.store.states import status
from tests.conftest import SECRETS, free_port
from tests.service.conftest import CBE, NOBODY, Served, serving, text_of
from tests.study.conftest import curve, rows
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.ray]

EVERY = 10
SHORT: dict[str, Any] = {
    "training": {"steps": 100, "eval_every": EVERY},
    "scheduler": "none",
    "budget": {"trials": 2},
}
ENDLESS = {**SHORT, "training": {"steps": 400_000, "eval_every": EVERY}}
MANY = {**SHORT, "budget": {"trials": 2000}}


def reports(service: Served, name: str) -> int:
    """How many are on record."""
    folder = service.folder(name)
    return folder.table("metrics", ["step"]).num_rows if folder.exists() else 0


def goes_on(service: Served, name: str, before: int = 0) -> None:
    """Waits until two trials have told more than before, and one of them more than once."""
    until(lambda: reports(service, name) > before + 2, 240, f"reports of {name}")


def is_driven(service: Served, name: str, driver: int) -> None:
    """The process that began it is at it, and it has not ended."""
    said = status(service.folder(name))
    assert said.plain["pid"] == driver
    assert said.alive and said.plain["state"] == "running"


def is_stopped(service: Served, name: str) -> None:
    """It is, by the service, and every step so far is there once."""
    assert service.http.post(f"/api/studies/{name}/stop").status_code == 200
    until(lambda: service.state(name) == "stopped", what="the stop")
    is_whole(service, name, "interrupted")


def is_whole(service: Served, name: str, state: str = "completed") -> None:
    """Every trial came to the same, and every step is there once."""
    found = rows(service.folder(name))
    assert {row["state"] for row in found.values()} == {state}
    for trial, row in found.items():
        steps = [step for step, *_ in curve(service.folder(name), trial)]
        assert steps == list(range(EVERY, (row["step"] or 0) + 1, EVERY))
        assert state != "completed" or row["step"] == row["steps"]


def test_a_killed_service_leaves_the_study_running_and_comes_back_with_everything(
    head: BackgroundProcess, tmp_path: Path
) -> None:
    with serving(tmp_path / "store", head.address, "--studies", "1") as service:
        service.submit(text_of("lasting", **ENDLESS))
        service.submit(text_of("next", **SHORT), priority=-1)
        goes_on(service, "lasting")
        before = {each["study"]: each for each in service.http.get("/api/studies").json()["studies"]}
        service.kill()
        driver = status(service.folder("lasting")).plain["pid"]
        goes_on(service, "lasting", reports(service, "lasting"))
        service.start()
        after = {each["study"]: each for each in service.http.get("/api/studies").json()["studies"]}
        assert after.keys() == before.keys() == {"lasting", "next"}
        for name in before:
            kept = ("owner", "priority", "submitted", "question")
            assert [after[name][key] for key in kept] == [before[name][key] for key in kept]
        is_driven(service, "lasting", driver)
        assert service.state("next") == "queued"
        is_stopped(service, "lasting")
        until(lambda: service.state("next") == "finished", 240, "the other")
        is_whole(service, "next")
        events = service.http.get("/api/audit").json()["events"]
        started = [each["study"] for each in events if each["kind"] == "started"]
        assert sorted(started) == ["lasting", "next"]


def test_a_killed_driver_is_shown_as_failed_with_its_reason_told_and_resumed(
    head: BackgroundProcess, tmp_path: Path
) -> None:
    told: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    hooks = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hooks.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{hooks.server_port}/hook"
    with serving(tmp_path / "store", head.address, "--notify", url, "--notify", f"slack:{url}") as service:
        service.submit(text_of("killed", **MANY))
        goes_on(service, "killed")
        os.kill(status(service.folder("killed")).plain["pid"], signal.SIGKILL)
        until(lambda: service.state("killed") == "failed", what="the failure")
        why = service.http.get("/api/studies/killed").json()["reason"]
        assert "killed by SIGKILL" in why and "resume it" in why
        until(lambda: len(told) == 2, what="the notices")
        assert {each.get("event") for each in told} == {"failed", None}
        assert "killed has failed" in next(each["text"] for each in told if "text" in each)

        fewer = {"set": {"budget.trials": 3}}
        assert service.http.post("/api/studies/killed/resume", json=fewer).status_code == 200
        until(lambda: service.state("killed") == "finished", 240, "the study")
        is_whole(service, "killed")
        assert len(rows(service.folder("killed"))) >= 3
        until(lambda: len(told) == 4, what="the other notices")
        finished = next(each for each in told if each.get("event") == "finished")
        answer = service.http.get("/api/studies/killed/best").json()
        assert (finished["sentence"], finished["url"]) == (
            answer["sentence"],
            f"{service.url}/studies/killed",
        )
    hooks.shutdown()
    hooks.server_close()


def test_a_service_with_a_cluster_of_its_own_finds_it_again_and_takes_it_along_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBE_TOKEN", SECRETS["CBE_TOKEN"])
    with serving(tmp_path / "store", None) as service:
        service.submit(text_of("own", **ENDLESS))
        goes_on(service, "own")
        driver = status(service.folder("own")).plain["pid"]
        knows = [
            SECRETS["CBE_TOKEN"].encode() in Path(f"/proc/{pid}/environ").read_bytes()
            for pid in (service.process.pid, driver)
        ]
        assert knows == [True, False]  # a secret of the service is none of its studies'
        again = [CBE, "serve", "--store", str(service.store), "--port", str(free_port()), "--ray", NOBODY]
        second = subprocess.run(again, capture_output=True, text=True, timeout=180)
        assert second.returncode == 2 and "has a service already" in second.stderr
        service.kill()
        service.start()
        is_driven(service, "own", driver)
        until(lambda: service.state("own") == "running", what="the study")
        service.kill(signal.SIGTERM)
        until(lambda: not status(service.folder("own")).alive, what="the driver's end")
        before = reports(service, "own")
        service.start()
        goes_on(service, "own", before)
        is_stopped(service, "own")
        kinds = [each["kind"] for each in service.http.get("/api/audit").json()["events"]]
        assert kinds.count("started") == 2 and "driver_lost" not in kinds


def test_a_study_whose_cluster_is_lost_is_started_again_by_the_service(tmp_path: Path) -> None:
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    first = started(str(tmp_path / "head"), cpus=2)
    second = None
    try:
        with serving(tmp_path / "store", first.address) as service:
            service.submit(text_of("survives", **ENDLESS))
            goes_on(service, "survives")
            first.kill()
            until(lambda: not status(service.folder("survives")).alive, what="the driver's end")
            known = reports(service, "survives")
            assert service.http.get("/api/studies/survives").status_code == 200
            until(lambda: service.http.get("/readyz").status_code == 503, what="the word that Ray is away")
            second = started(str(tmp_path / "head"), cpus=2, port=int(first.address.rpartition(":")[2]))
            assert second.address == first.address
            goes_on(service, "survives", known)
            is_stopped(service, "survives")
            lost = [
                each
                for each in service.http.get("/api/audit").json()["events"]
                if each["kind"] == "driver_lost"
            ]
            assert [each["study"] for each in lost] == ["survives"]
    finally:
        for each in (first, second):
            if each is not None:
                each.kill()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
