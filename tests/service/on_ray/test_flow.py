"""A study from its submission to its answer, through every door: CLI, REST, Python and Ray Jobs alone."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cbe
from cbe.processes import BackgroundProcess
from cbe.report.best import best
from cbe.store.folder import Store, StudyFolder
from tests.conftest import Cbe, Done
from tests.service.conftest import CBE, Served, end_jobs, jobs_at, place_taken, text_of
from tests.study.conftest import rows
from tests.waiting import until

QUICKSTART = Path(__file__).parents[3] / "studies" / "quickstart.yaml"
SHORTER = [
    *("training.steps=30", "training.eval_every=10", "training.batch_size=8", "training.unlabeled_ratio=2"),
    *("scheduler.grace=10", "budget.trials=4", "confirm.runs=2", "resources.concurrent=1"),
]


ENDLESS: dict[str, Any] = {
    "training": {"steps": 400_000, "eval_every": 10},
    "scheduler": "none",
    "budget": {"trials": 2},
    "resources": {"concurrent": 1},  # which leaves a core to those who ask
}


Run = Callable[..., Done]


@pytest.fixture
def run(cbe_: Cbe) -> Run:
    """The command, which must end with a code."""

    def call(*arguments: object, code: int = 0) -> Done:
        done = cbe_(*arguments)
        assert done.code == code, done.err + done.out
        return done

    return call


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


def test_the_quickstart_gives_the_same_answer_through_every_door(
    served: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [part for setting in SHORTER for part in ("--set", setting)]
    told = run("submit", QUICKSTART, *options, "--address", served.url, "--json")
    assert json.loads(told.out)["state"] in ("queued", "starting", "running")
    again = run("submit", QUICKSTART, *options, "--address", served.url, "--json")
    assert json.loads(again.out)["study"] == "quickstart"
    other = run("submit", QUICKSTART, *options, "--set", "training.lr=0.05", "--address", served.url, code=2)
    assert "training.lr: stored is 0.06, now it is 0.05" in other.err and "Traceback" not in other.err

    reported = first_metric(served, "quickstart")
    assert reported["step"] and 0 <= reported["objective"] <= 1
    watched = run("show", "quickstart", "--watch", "--address", served.url)
    assert "quickstart: finished" in watched.err

    local = best(served.folder("quickstart"), 3).to_plain()
    rest = served.http.get("/api/studies/quickstart/best", params={"k": 3}).json()
    command = json.loads(run("best", "quickstart", "-k", 3, "--json", "--address", served.url).out)
    with cbe.connect(served.url) as service:
        client = service.best("quickstart", 3)
    assert rest == command == json.loads(json.dumps(client.to_plain())) == json.loads(json.dumps(local))

    shown = json.loads(run("show", "quickstart", "--json", "--address", served.url).out)
    assert shown["state"] == "finished" and shown["search"] == {"done": 4, "total": 4}
    assert {row["trial"] for row in shown["trials"]} == set(
        served.folder("quickstart").table("trials")["trial"].to_pylist()
    )
    assert "completed at 30/30" in run("logs", "quickstart", "--address", served.url).out
    monkeypatch.setenv("CBE_ADDRESS", served.url)
    listed = json.loads(run("ls", "--json").out)
    assert "quickstart" in {each["study"] for each in listed}


def test_a_study_waits_its_turn_is_stopped_amended_resumed_and_deleted(
    head: BackgroundProcess, served: Served, run: Run
) -> None:
    with place_taken(head.address), cbe.connect(served.url) as client:  # which leaves one of two
        for name in ("one", "two"):
            assert served.submit(text_of(name, **ENDLESS)).status_code == 201
        until(lambda: served.state("one") == "running", what="the study")
        shown = served.http.get("/api/studies/two").json()
        assert (shown["state"], shown["queue_position"], shown["owner"]) == ("queued", 1, "local")
        assert client.stop("two").state == "new"

        refused = served.http.patch("/api/studies/one", json={"set": {"budget.trials": 3}})
        assert refused.status_code == 409 and "is running; stop it first" in refused.json()["message"]
        assert served.http.delete("/api/studies/one?confirm=one").status_code == 409
        until(lambda: served.http.get("/api/studies/one").json()["counts"].get("running"), what="a trial")
        served.folder("one").write("stop", b"")  # as `cbe stop --store` asks for it
        early = served.http.post("/api/studies/one/resume")
        assert early.status_code == 409 and "just ending" in early.text, early.text
        until(lambda: served.state("one") == "stopped", what="the stop")
        assert served.http.get("/api/studies/one").json()["reason"] == "it was asked to stop"

        before = {row["trial"]: row["step"] for row in client.show("one").trials}
        more = {"set": {"budget.trials": 3}, "priority": 7}

        def amended() -> Any:
            found = served.http.patch("/api/studies/one", json=more)
            return found.status_code == 200 and found.json()

        changed = until(amended, what="the driver's end")
        assert (changed["search"]["total"], changed["priority"]) == (3, 7)
        assert client.resume("one").state in ("queued", "starting", "running")
        seen: list[str] = []
        until(lambda: seen.append(served.state("one")) or seen[-1] == "running", what="it to run again")
        assert "stopped" not in seen  # as the driver before has said

        def went_on() -> bool:
            return any(
                (row["step"] or 0) > (before.get(row["trial"]) or 0) for row in client.show("one").trials
            )

        until(went_on, what="the study")
        assert client.stop("one").state in ("stopping", "stopped")
        until(lambda: served.state("one") == "stopped", what="the second stop")
        assert served.http.delete("/api/studies/one").status_code == 409
        there = ("--address", served.url)
        assert "give --yes" in run("delete", "one", *there, code=2).err
        assert "one: deleted" in run("delete", "one", *there, "--yes").err
        assert served.http.get("/api/studies/one").status_code == 404
        assert not served.folder("one").exists() and not (served.store / "one").exists()
        done = [(event["kind"], event["study"]) for event in served.http.get("/api/audit").json()["events"]]
        assert ("deleted", "one") in done and done.count(("submitted", "one")) == 1


@pytest.fixture
def alone(head: BackgroundProcess, tmp_path: Path) -> Iterator[Path]:
    """A store that no service keeps."""
    store = tmp_path / "store"
    yield store
    end_jobs(head.address, store)


def reached(folder: StudyFolder) -> dict[str, int]:
    """The step of each trial, as the store has it."""
    return {name: row["step"] or 0 for name, row in rows(folder).items()} if folder.exists() else {}


def test_a_cluster_without_a_service_takes_studies_too(
    head: BackgroundProcess, tmp_path: Path, alone: Path, run: Run
) -> None:
    file, store = tmp_path / "direct.yaml", alone
    folder = Store.open(str(store)).study("direct")
    file.write_text(text_of("direct", **ENDLESS))
    there = ("--address", head.address)
    jobs = jobs_at(head.address)
    (tmp_path / "a-file").write_text("")
    run("submit", file, "--store", tmp_path / "a-file" / "store", *there)
    until(lambda: (job := jobs.find("direct")) and job.status == "failed", what="a start in vain")
    told = json.loads(run("submit", file, "--store", store, *there, "--json").out)
    assert (told["study"], told["state"]) == ("direct", "starting")
    assert json.loads(run("submit", file, "--store", store, *there, "--json").out)["study"] == "direct"

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run("show", "direct", *there, "--json").out)
        return found

    until(lambda: any(reached(folder).values()), what="a report")
    assert any(row["step"] for row in shown()["trials"])
    assert [
        each["state"] for each in json.loads(run("ls", *there, "--json").out) if each["study"] == "direct"
    ] == ["running"]
    other = run("submit", file, "--set", "training.lr=0.01", "--store", store, *there, code=2)
    assert "training.lr: stored is 0.06, now it is 0.01" in other.err
    run("stop", "direct", *there)
    until(lambda: (job := jobs.find("direct")) and not job.active, what="the stop")
    assert shown()["state"] == "stopped"
    assert "it was asked to stop" in run("logs", "direct", *there).out
    before = reached(folder)
    run("resume", "direct", *there)
    until(lambda: any(step > before.get(name, 0) for name, step in reached(folder).items()), what="the study")
    assert any((row["step"] or 0) > before.get(row["trial"], 0) for row in shown()["trials"])
    run("stop", "direct", *there)
    # Until it has ended; in a process of its own, for a warning of the library by which Ray reads a log.
    follow = [CBE, "logs", "direct", "--follow", *there]
    followed = subprocess.run(follow, capture_output=True, text=True, timeout=240, check=True)
    assert "stopping" in followed.stdout and shown()["state"] == "stopped"
