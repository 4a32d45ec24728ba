"""The Python client and the commands with an address, against a real service; Ray is away throughout."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

import cbe
from cbe.errors import ConfigError, InputError, RunError
from cbe.processes import born
from cbe.report.across import best_of_all
from cbe.report.best import best
from cbe.service.auth.tokens import Role
from cbe.service.clients.service import Client, connect
from cbe.service.queue import submissions
from cbe.service.queue.ray_jobs import Jobs
from cbe.service.queue.submissions import Submission
from cbe.service.service import Service
from cbe.service.trials import trial
from cbe.service.web.app import create_app
from cbe.spec import TrainConfig, read_config
from cbe.store.folder import Store
from cbe.study.overview import details, overviews
from cbe.study.trial.log import logged
from tests.conftest import Cbe
from tests.made import SECTIONS, Made, finished, status, whole
from tests.waiting import until

NOBODY = "http://127.0.0.1:9"  # where no Ray is
ALIVE = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
STUDY = yaml.safe_dump({"name": "sent", **SECTIONS}, sort_keys=False)


@dataclass
class Served:
    """A service in a thread of this process."""

    store: Path
    service: Service = field(init=False)
    port: int = 0

    def __enter__(self) -> Served:
        self.service = Service(Store.open(str(self.store)), Jobs(NOBODY), folder=self.store)
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            create_app(self.service), log_config=None, ws="none", timeout_graceful_shutdown=1
        )
        self._server, self._socket = uvicorn.Server(config), listening
        self._thread = threading.Thread(target=self._server.run, args=[[listening]])
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the service did not start"
            self._thread.join(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "store") as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with cbe.connect(served.url) as found:
        yield found


def finished_there(served: Served) -> Made:
    """A finished study that the service has seen."""
    made = finished(served.store)
    with connect(served.url) as client:
        until(lambda: [each.state for each in client.ls(search="made")] == ["finished"])
    return made


# --- what is read is what the store has ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "sections", [{}, {"objective": ["validation_error", "macs"]}, {"confirm": {"configs": 0, "runs": 0}}]
)
def test_the_answer_from_afar_is_the_answer_of_the_store(
    client: Client, served: Served, sections: dict[str, Any]
) -> None:
    made = whole(served.store, **sections)
    assert client.best("made", k=4) == best(made.folder, 4)
    condition = "ensemble_heads <= 4"
    assert client.best("made", where=condition) == best(made.folder, where=condition)
    assert client.best_of_all(2) == best_of_all(Store.open(str(served.store)), 2)


def test_studies_and_trials_from_afar_are_those_of_the_store(client: Client, served: Served) -> None:
    made, store = finished(served.store), Store.open(str(served.store))
    Made(served.store, "empty")
    (served.store / "broken").mkdir()
    (served.store / "broken" / "study.yaml").write_text("model: vit\n")
    expected = {each.study: each for each in overviews(store)}
    assert len(expected) == 3
    until(lambda: {each.study: each.overview for each in client.ls()} == expected)
    assert [each.study for each in client.ls(search="mad")] == ["made"]
    assert [each.study for each in client.ls(state="new")] == ["empty"]
    shown = client.show("made")
    assert (shown.overview, shown.trials) == (details(store, "made").overview, details(store, "made").trials)
    assert shown.study_status.owner is None and shown.study_status.overview == shown.overview
    with logged(made.folder, "t0002") as log:
        log.say("begins")
    assert client.trial("made", "t0002") == trial(store, "made", "t0002")
    assert client.trial("made", "t0002").log.endswith("begins\n")
    assert client.report("made").startswith("<!doctype html>")
    rows = client.sql("select trial, objective from trials order by trial", "made").to_pylist()
    table = made.folder.table("trials", ["trial", "objective"]).sort_by("trial")
    assert rows == table.to_pylist()


def test_a_service_knows_what_was_submitted_before_any_ray_answers(tmp_path: Path) -> None:
    made = Made(tmp_path / "store")
    submissions.write(made.folder, Submission("ada", datetime(2026, 5, 4, tzinfo=UTC), priority=-3))
    with Served(tmp_path / "store") as served, connect(served.url) as client:
        (found,) = client.ls()  # the very first answer
        assert (found.owner, found.priority, found.state) == ("ada", -3, "queued")


def test_a_long_list_comes_whole(client: Client, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbe.service.clients.service.PAGE", 2)
    for number in range(5):
        Made(served.store, f"made-{number}")
    until(lambda: len(client.ls()) == 5)
    assert {each.study for each in client.ls()} == {f"made-{number}" for number in range(5)}


def test_an_answer_that_was_cut_is_refused_and_not_given_in_part(client: Client, served: Served) -> None:
    many = "select r from range(10001) as t(r)"
    with pytest.raises(InputError, match="more than the 10,000 rows"):
        client.sql(many)
    assert len(client.sql(f"{many} limit 10")) == 10


# --- what is asked for --------------------------------------------------------------------------------------


def test_a_study_is_checked_submitted_stopped_resumed_amended_and_deleted(
    client: Client, tmp_path: Path
) -> None:
    assert client.check(STUDY)["about"]["trials"] == 12
    (tmp_path / "sent.yaml").write_text(STUDY)
    sent = client.submit(tmp_path / "sent.yaml", priority=3)
    assert (sent.study, sent.state, sent.queue_position, sent.priority) == ("sent", "queued", 1, 3)
    assert client.submit(str(tmp_path / "sent.yaml")).submitted == sent.submitted
    assert client.submit(STUDY.replace("sent", "later")).queue_position == 2
    assert client.amend("later", priority=5).queue_position == 1
    assert client.stop("sent").state == "new"
    resumed = client.resume("sent", **{"budget.trials": 20})
    assert resumed.state == "queued" and resumed.overview.search is not None
    assert resumed.overview.search.total == 20
    client.stop("sent")
    assert client.amend("sent", {"budget.trials": 30}).overview.search.total == 30  # type: ignore[union-attr]
    client.delete("sent")
    with pytest.raises(InputError, match="study sent: there is none of that name"):
        client.show("sent")


def test_faults_are_told_as_those_of_a_file_here(client: Client) -> None:
    with pytest.raises(ConfigError) as refused:
        client.submit("name: sent\nmodel: vit\nbudget: {trails: 4}\n")
    wheres = [fault.where for fault in refused.value.faults]
    assert wheres == ["study.yaml:2 model.name", "study.yaml:3 budget.trails"]
    assert "did you mean trials?" in str(refused.value)
    client.submit(STUDY)
    with pytest.raises(ConfigError, match=r"budget\.trials: stored is 12, now it is 9"):
        client.submit(yaml.safe_dump({"name": "sent", **SECTIONS, "budget": {"trials": 9}}))


@pytest.mark.parametrize("name", ["..", "", "a/b", "Größe"])
def test_a_name_that_is_none_asks_for_nothing_else(client: Client, name: str) -> None:
    with pytest.raises(InputError):
        client.show(name)


def test_a_service_without_its_cluster_says_so(client: Client) -> None:
    client.submit(STUDY)
    with pytest.raises(RunError, match=f"no Ray at {NOBODY}"):
        list(client.logs("sent"))
    with pytest.raises(RunError, match="no Ray at"):
        client.cluster()


def test_what_a_cluster_alone_needs_is_refused_by_a_service(client: Client) -> None:
    with pytest.raises(InputError, match=r"--store: .* has its own"):
        client.submit(STUDY, store="s3://elsewhere")


def test_a_token_is_taken_from_the_environment_and_its_role_is_heeded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, _ = served.service.tokens.create("ada", Role.read)
    with connect(served.url) as stranger, pytest.raises(InputError, match="set CBE_TOKEN"):
        stranger.ls()
    with connect(served.url, "cbe_wrong") as guessing, pytest.raises(InputError, match="not valid"):
        guessing.ls()
    monkeypatch.setenv("CBE_TOKEN", f"{secret}\n")
    monkeypatch.setenv("CBE_ADDRESS", served.url)
    with cbe.connect() as reader:
        assert reader.ls() == []
        with pytest.raises(InputError, match="this needs submit"):
            reader.submit(STUDY)
        assert secret not in repr(reader)


# --- what happens, as it does -------------------------------------------------------------------------------


def test_a_study_is_watched_until_it_ends(client: Client, served: Served) -> None:
    made = Made(served.store)
    made.trial(0.4, preset="base")
    status(made, "running", **ALIVE, stage="search")
    news = client.watch("made")
    assert len(next(news).trials) == 1
    made.trial(0.2, {"ensemble.heads": 4})
    found = next(each for each in news if len(each.trials) == 2)
    assert found.overview.state == "running"
    status(made, "finished", stage="finished")
    *_, found = news
    assert found.overview.state == "finished"
    assert found == client.show("made")


def test_a_watch_outlasts_a_restart_of_the_service(tmp_path: Path) -> None:
    made = Made(tmp_path / "store")
    status(made, "running", **ALIVE, stage="search")
    with Served(tmp_path / "store") as served:
        client = connect(served.url)
        news = client.watch("made")
        assert next(news).overview.state == next(news).overview.state == "running"
    made.trial(0.4, preset="base")
    with Served(tmp_path / "store", port=served.port):
        while not (found := next(news)).trials:
            pass
        status(made, "finished")
        assert found.trials[0]["trial"] == "t0000"
        assert [each.overview.state for each in news][-1] == "finished"
    client.close()


def test_a_study_that_is_deleted_is_watched_no_longer(client: Client, served: Served) -> None:
    client.submit(STUDY)
    news = client.watch("sent")
    assert next(news).overview.state == "queued"
    served.service.store.study("sent").remove()
    with pytest.raises(InputError, match="sent"):
        list(news)


# --- the way there ------------------------------------------------------------------------------------------


# --- the commands -------------------------------------------------------------------------------------------


def test_the_commands_do_from_afar_what_they_do_here(served: Served, cbe_: Cbe, tmp_path: Path) -> None:
    made, at = finished_there(served), ["--address", served.url]
    file = tmp_path / "sent.yaml"
    file.write_text(STUDY)
    done = cbe_("submit", file, *at, "--set", "budget.trials=14")
    assert (done.code, done.out) == (0, ""), done.err
    assert done.err.splitlines() == [
        "sent: queued, place 1 in the queue",
        f"Watch it with: cbe show sent --address {served.url} --watch",
    ]
    listed = cbe_("ls", *at)
    assert "sent queued 1 0/14 0/9" in listed.words and "made finished" in listed.words
    assert max(map(len, listed.out.splitlines())) <= 80
    assert {each["study"] for each in json.loads(cbe_("ls", *at, "--json").out)} == {"made", "sent"}
    shown = cbe_("show", "sent", *at)
    assert "of local, submitted 20" in shown.words and "place 1 in the queue" in shown.words
    assert "optuna" not in shown.out
    assert json.loads(cbe_("show", "sent", *at, "--json").out)["owner"] == "local"
    stopped = cbe_("stop", "sent", *at)
    assert "sent: new (taken out of the queue)" in stopped.err and "cbe resume sent --address" in stopped.err
    edited = cbe_("resume", "sent", *at, "--file", file)
    assert edited.code == 2 and "with --set key=value" in edited.err
    resumed = json.loads(cbe_("resume", "sent", *at, "--set", "budget.trials=16", "--json").out)
    assert (resumed["state"], resumed["search"]["total"]) == ("queued", 16)
    away = cbe_("logs", "sent", *at)
    assert away.code == 1 and "no Ray at" in away.err
    store = ["--store", served.store]
    assert cbe_("best", "made", *at, "--json").out == cbe_("best", "made", *store, "--json").out
    assert cbe_("best", *at, "--json").out == cbe_("best", *store, "--json").out
    assert cbe_("best", "made", *at, "--yaml").out == cbe_("best", "made", *store, "--yaml").out
    again = cbe_("best", "made", *at).out
    assert f"cbe best made --address {served.url} --yaml > best.yaml" in again
    asked = ("query", "made", "select trial, objective from trials order by trial", "--format", "csv")
    assert cbe_(*asked, *at).out == cbe_(*asked, *store).out != ""
    assert cbe_("report", "made", *at).code == 0
    config_id = json.loads(cbe_("best", "made", *store, "--json").out)["ranked"][0]["config_id"]
    assert config_id in (tmp_path / "made.html").read_text("utf-8")
    first = cbe_("show", "made/t0002", *at, "--yaml").out
    assert first == cbe_("show", "made/t0002", *store, "--yaml").out
    file.write_text(first)
    assert read_config(TrainConfig, file).to_plain() == json.loads(
        next(row["config"] for row in made.folder.table("trials").to_pylist() if row["trial"] == "t0002")
    )


def test_the_address_may_stand_in_the_environment_and_a_named_store_goes_before_it(
    served: Served, cbe_: Cbe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finished_there(served)
    Made(tmp_path / "results", "here")
    assert "here" in cbe_("ls").out
    monkeypatch.setenv("CBE_ADDRESS", served.url)
    assert "made" in cbe_("ls").out and "here" not in cbe_("ls").out
    assert "cbe best made --yaml" in cbe_("best", "made").out
    assert "here" in cbe_("ls", "--store", tmp_path / "results").out
    both = cbe_("ls", "--store", tmp_path / "results", "--address", served.url)
    assert both.code == 2 and "give one of the two" in both.err
    monkeypatch.setenv("CBE_STORE", str(tmp_path / "results"))
    assert "made" in cbe_("ls").out


def test_a_study_is_submitted_and_watched_to_its_end(served: Served, cbe_: Cbe, tmp_path: Path) -> None:
    """What a driver and the queue would write is written here, for there is no Ray."""
    (tmp_path / "made.yaml").write_text(yaml.safe_dump({"name": "made", **SECTIONS}))
    folder = served.service.store.study("made")

    def drive() -> None:
        waited = threading.Event()
        while not (folder.exists() and (asked := submissions.read(folder))):
            waited.wait(0.05)
        finished(served.store)
        with connect(served.url) as client:  # a driver ends long before the queue hears of it
            until(lambda: client.show("made").overview.elapsed_s, what="the driver's last word")
        submissions.write(folder, replace(asked, wanted="rest", started=asked.submitted))
        served.service.reconciler.refresh("made")

    driver = threading.Thread(target=drive)
    driver.start()
    done = cbe_("submit", tmp_path / "made.yaml", "--address", served.url, "--watch", "--json")
    driver.join()
    assert done.code == 0, done.err
    assert json.loads(done.out) == json.loads(json.dumps(best(folder).to_plain()))
    assert "made: finished\n" in done.err


def test_what_has_no_address_says_where_to_turn(cbe_: Cbe, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(STUDY)
    assert "cbe run a.yaml` runs it here" in cbe_("submit", "a.yaml").err
    assert "cbe show made --watch" in cbe_("logs", "made").err
    refused = cbe_("run", "a.yaml", "--address", "http://127.0.0.1:9")
    assert refused.code == 2 and "cbe submit a.yaml --address http://127.0.0.1:9" in refused.err
    assert not (tmp_path / "results").exists()
