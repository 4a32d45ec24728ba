"""A study from its submission to its answer, through every door: CLI, REST, Python and Ray Jobs alone."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cbe
from cbe.report.best import best
from cbe.service.head import Head
from cbe.store.folder import Store, StudyFolder
from tests.service.conftest import CBE, Served, end_jobs, jobs_at, text_of
from tests.study.conftest import rows
from tests.waiting import until

QUICKSTART = Path(__file__).parents[2] / "studies" / "quickstart.yaml"
SHORTER = [
    *("training.steps=30", "training.eval_every=10", "training.batch_size=8", "training.unlabeled_ratio=2"),
    *("scheduler.grace=10", "budget.trials=4", "confirm.runs=2"),
]


ENDLESS: dict[str, Any] = {
    "training": {"steps": 400_000, "eval_every": 10},
    "scheduler": "none",
    "budget": {"trials": 2},
    "resources": {"concurrent": 1},  # which leaves a core to those who ask
}


def run(*arguments: object, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a person runs it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CBE_")}
    done = subprocess.run(
        [CBE, *map(str, arguments)], capture_output=True, text=True, timeout=240, env=environment | more
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done


def first_metric(service: Served, name: str) -> dict[str, Any]:
    """Listens to a study until one of its trials reports."""
    deadline = time.monotonic() + 120
    with service.http.stream("GET", f"/api/studies/{name}/events") as events:
        kind = ""
        for line in events.iter_lines():
            assert time.monotonic() < deadline, "no trial ever reported"
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: ") and kind == "trials":
                for row in json.loads(line.removeprefix("data: "))["trials"]:
                    if row["objective"] is not None:
                        found: dict[str, Any] = row
                        return found
    raise AssertionError("the events ended before a trial reported")


def test_the_quickstart_gives_the_same_answer_through_every_door(served: Served) -> None:
    options = [part for setting in SHORTER for part in ("--set", setting)]
    told = run("submit", QUICKSTART, *options, "--address", served.url, "--json")
    assert json.loads(told.stdout)["state"] in ("queued", "starting", "running")
    again = run("submit", QUICKSTART, *options, "--address", served.url, "--json")
    assert json.loads(again.stdout)["study"] == "quickstart"
    other = run("submit", QUICKSTART, *options, "--set", "training.lr=0.05", "--address", served.url, code=2)
    assert "training.lr: stored is 0.06, now it is 0.05" in other.stderr and "Traceback" not in other.stderr

    reported = first_metric(served, "quickstart")
    assert reported["step"] and 0 <= reported["objective"] <= 1
    watched = run("show", "quickstart", "--watch", "--address", served.url)
    assert "quickstart: finished" in watched.stderr

    local = best(served.folder("quickstart"), 3).to_plain()
    rest = served.http.get("/api/studies/quickstart/best", params={"k": 3}).json()
    command = json.loads(run("best", "quickstart", "-k", 3, "--json", "--address", served.url).stdout)
    with cbe.connect(served.url) as service:
        client = service.best("quickstart", 3)
    assert rest == command == json.loads(json.dumps(client.to_plain())) == json.loads(json.dumps(local))

    shown = json.loads(run("show", "quickstart", "--json", "--address", served.url).stdout)
    assert shown["state"] == "finished" and shown["search"] == {"done": 4, "total": 4}
    assert {row["trial"] for row in shown["trials"]} == set(
        served.folder("quickstart").table("trials")["trial"].to_pylist()
    )
    assert "completed at 30/30" in run("logs", "quickstart", "--address", served.url).stdout
    listed = json.loads(run("ls", "--json", CBE_ADDRESS=served.url).stdout)
    assert [each["study"] for each in listed] == ["quickstart"]


def test_a_study_waits_its_turn_is_stopped_amended_resumed_and_deleted(served: Served) -> None:
    for name in ("one", "two", "three"):  # two run at once
        assert served.submit(text_of(name, **ENDLESS)).status_code == 201
    until(lambda: served.state("one") == served.state("two") == "running", what="two studies")
    shown = served.http.get("/api/studies/three").json()
    assert (shown["state"], shown["place"], shown["owner"]) == ("queued", 1, "local")

    with cbe.connect(served.url) as client:
        assert client.stop("three").state == "new"
        refused = served.http.patch("/api/studies/one", json={"set": {"budget.trials": 3}})
        assert refused.status_code == 409 and "is running; stop it first" in refused.json()["message"]
        assert served.http.delete("/api/studies/one?confirm=one").status_code == 409
        until(lambda: served.http.get("/api/studies/one").json()["counts"].get("running"), what="a trial")
        assert client.stop("one").state in ("stopping", "halted")
        assert client.stop("two").state in ("stopping", "halted")
        until(lambda: served.state("one") == served.state("two") == "halted", what="the stop")
        assert served.http.get("/api/studies/one").json()["why"] == "it was asked to stop"

        amended = served.http.patch(
            "/api/studies/one", json={"set": {"budget.trials": 3}, "priority": 7}
        ).json()
        assert (amended["search"]["total"], amended["priority"]) == (3, 7)
        before = {row["trial"]: row["step"] for row in client.show("one").trials}
        assert client.resume("one").state in ("queued", "starting", "running")

        def went_on() -> bool:
            return any(
                (row["step"] or 0) > (before.get(row["trial"]) or 0) for row in client.show("one").trials
            )

        until(went_on, what="the study")
        client.stop("one")
        until(lambda: served.state("one") == "halted", what="the second stop")
        assert served.http.delete("/api/studies/one").status_code == 409
        there = ("--address", served.url)
        assert "give --yes" in run("delete", "one", *there, code=2).stderr
        assert "one: deleted" in run("delete", "one", *there, "--yes").stderr
        assert served.http.get("/api/studies/one").status_code == 404
        assert not served.folder("one").exists() and not (served.store / "one").exists()
        done = [(event["kind"], event["study"]) for event in served.http.get("/api/audit").json()["events"]]
        assert ("deleted", "one") in done and done.count(("submitted", "one")) == 1


@pytest.fixture
def alone(head: Head, tmp_path: Path) -> Iterator[Path]:
    """A store that no service keeps."""
    store = tmp_path / "store"
    yield store
    end_jobs(head.address, store)


def reached(folder: StudyFolder) -> dict[str, int]:
    """The step of each trial, as the store has it."""
    return {name: row["step"] or 0 for name, row in rows(folder).items()} if folder.exists() else {}


def test_a_cluster_without_a_service_takes_studies_too(head: Head, tmp_path: Path, alone: Path) -> None:
    file, store = tmp_path / "direct.yaml", alone
    folder = Store.open(str(store)).study("direct")
    file.write_text(text_of("direct", **ENDLESS))
    there = ("--address", head.address)
    told = json.loads(run("submit", file, "--store", store, *there, "--json").stdout)
    assert (told["study"], told["state"]) == ("direct", "starting")
    assert json.loads(run("submit", file, "--store", store, *there, "--json").stdout)["study"] == "direct"

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run("show", "direct", *there, "--json").stdout)
        return found

    until(lambda: any(reached(folder).values()), what="a report")
    assert any(row["step"] for row in shown()["trials"])
    assert [
        each["state"] for each in json.loads(run("ls", *there, "--json").stdout) if each["study"] == "direct"
    ] == ["running"]
    other = run("submit", file, "--set", "training.lr=0.01", "--store", store, *there, code=2)
    assert "training.lr: stored is 0.06, now it is 0.01" in other.stderr
    run("stop", "direct", *there)
    jobs = jobs_at(head.address)
    until(lambda: (job := jobs.find("direct")) and not job.active, what="the stop")
    assert shown()["state"] == "halted"
    assert "it was asked to stop" in run("logs", "direct", *there).stdout
    before = reached(folder)
    run("resume", "direct", *there)
    until(lambda: any(step > before.get(name, 0) for name, step in reached(folder).items()), what="the study")
    assert any((row["step"] or 0) > before.get(row["trial"], 0) for row in shown()["trials"])
    run("stop", "direct", *there)
    followed = run("logs", "direct", "--follow", *there)  # until it has ended
    assert "stopping" in followed.stdout and shown()["state"] == "halted"
