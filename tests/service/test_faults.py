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

from cbe.service.head import Head, started
from cbe.study.control import status
from tests.conftest import free_port
from tests.service.conftest import CBE, NOBODY, Served, serving, text_of
from tests.study.conftest import curve, rows
from tests.waiting import until

LONGER = {
    "training": {"steps": 200, "eval_every": 10},
    "scheduler": "none",
    "budget": {"trials": 3},
    "confirm": {"configs": 0, "runs": 0},
}


def has_reported(service: Served, name: str) -> bool:
    folder = service.folder(name)
    return folder.exists() and any((row["step"] or 0) >= 20 for row in rows(folder).values())


def is_whole(service: Served, name: str) -> None:
    """Every trial reached its end, and every step is there once."""
    found = rows(service.folder(name))
    assert {row["state"] for row in found.values()} == {"completed"} and len(found) == 3
    for trial in found:
        assert [step for step, *_ in curve(service.folder(name), trial)] == list(range(10, 201, 10))


def test_a_killed_service_leaves_the_study_running_and_comes_back_with_everything(served: Served) -> None:
    served.submit(text_of("lasting", **LONGER))
    served.submit(text_of("next", **LONGER | {"budget": {"trials": 1}}), priority=-1)
    until(lambda: has_reported(served, "lasting"), what="a report")
    before = {each["study"]: each for each in served.http.get("/api/studies").json()["studies"]}
    served.kill()
    driver = status(served.folder("lasting")).plain["pid"]
    step = max(row["step"] or 0 for row in rows(served.folder("lasting")).values())
    until(lambda: max(row["step"] or 0 for row in rows(served.folder("lasting")).values()) > step, what="it")
    served.start()
    after = {each["study"]: each for each in served.http.get("/api/studies").json()["studies"]}
    assert after.keys() == before.keys()
    for name in before:
        kept = ("owner", "priority", "submitted", "question")
        assert [after[name][key] for key in kept] == [before[name][key] for key in kept]
    assert status(served.folder("lasting")).plain["pid"] == driver
    until(lambda: served.state("lasting") == served.state("next") == "finished", 180, "both")
    is_whole(served, "lasting")
    started_once = [
        each["study"] for each in served.http.get("/api/audit").json()["events"] if each["kind"] == "started"
    ]
    assert sorted(started_once) == ["lasting", "next"]


def test_a_killed_driver_is_shown_as_failed_with_its_reason_told_and_resumed(
    head: Head, tmp_path: Path
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
        service.submit(text_of("killed", **LONGER))
        until(lambda: has_reported(service, "killed"), what="a report")
        os.kill(status(service.folder("killed")).plain["pid"], signal.SIGKILL)
        until(lambda: service.state("killed") == "failed", what="the failure")
        why = service.http.get("/api/studies/killed").json()["why"]
        assert "killed by SIGKILL" in why and "resume it" in why
        until(lambda: len(told) == 2, what="the notices")
        assert {each.get("event") for each in told} == {"failed", None}
        assert "killed has failed" in next(each["text"] for each in told if "text" in each)

        assert service.http.post("/api/studies/killed/resume").status_code == 200
        until(lambda: service.state("killed") == "finished", 180, "the study")
        is_whole(service, "killed")
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
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "store", None) as service:
        service.submit(text_of("own", **LONGER))
        until(lambda: has_reported(service, "own"), what="a report")
        driver = status(service.folder("own")).plain["pid"]
        again = [CBE, "serve", "--store", str(service.store), "--port", str(free_port()), "--ray", NOBODY]
        second = subprocess.run(again, capture_output=True, text=True, timeout=60)
        assert second.returncode == 2 and "has a service already" in second.stderr
        service.kill()
        service.start()
        assert status(service.folder("own")).plain["pid"] == driver and status(service.folder("own")).alive
        until(lambda: service.state("own") == "running", what="the study")
        service.kill(signal.SIGTERM)
        until(lambda: not status(service.folder("own")).alive, what="the driver's end")
        service.start()
        until(lambda: service.state("own") == "finished", 240, "the study")
        is_whole(service, "own")
        kinds = [each["kind"] for each in service.http.get("/api/audit").json()["events"]]
        assert kinds.count("started") == 2 and "driver_lost" not in kinds


def test_a_study_whose_cluster_is_lost_is_started_again_by_the_service(tmp_path: Path) -> None:
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    first = started(str(tmp_path / "head"), cpus=2)
    second = None
    try:
        with serving(tmp_path / "store", first.address) as service:
            service.submit(text_of("survives", **LONGER))
            until(lambda: has_reported(service, "survives"), what="a report")
            first.end()
            until(lambda: not status(service.folder("survives")).alive, what="the driver's end")
            assert service.http.get("/api/studies/survives").status_code == 200
            until(lambda: service.http.get("/readyz").status_code == 503, what="the word that Ray is away")
            second = started(str(tmp_path / "head"), cpus=2, port=int(first.address.rpartition(":")[2]))
            assert second.address == first.address
            until(lambda: service.state("survives") == "finished", 240, "the study")
            is_whole(service, "survives")
            lost = [
                each
                for each in service.http.get("/api/audit").json()["events"]
                if each["kind"] == "driver_lost"
            ]
            assert [each["study"] for each in lost] == ["survives"]
    finally:
        for each in (first, second):
            if each is not None:
                each.end()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
