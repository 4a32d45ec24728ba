"""What holds for studies wherever they are: in a store here, on a service, on a Ray cluster alone."""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import cbe
from cbe.errors import CbeError, ConfigError, InputError
from cbe.processes import born
from cbe.report.across import best_of_all
from cbe.report.best import best
from cbe.service.clients.interface import Studies
from cbe.service.clients.local import LocalStudies
from cbe.service.queue.ray_jobs import STORE
from cbe.service.trials import trial
from cbe.store.folder import Store
from cbe.study.control import stop_was_asked
from cbe.study.overview import details
from tests.conftest import Cbe
from tests.made import Made, status, whole
from tests.service.clients.test_service import Served
from tests.service.conftest import end_jobs, jobs_at
from tests.waiting import until

ALIVE = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname(), "stage": "search"}


@dataclass
class Backend:
    """A backend, the folder of its store, and how it hears of a study that a test has written there."""

    kind: str
    studies: Studies
    folder: Path
    drive: Callable[[str, list[str]], Any] = lambda study, command: None

    @property
    def store(self) -> Store:
        return Store.open(str(self.folder))

    def ended(self, name: str) -> Made:
        """Adds a study that has finished."""
        made = whole(self.folder, name)
        status(made, "finished")
        self.drive(name, ["echo", "the driver's word"])
        self._until(name, "finished")
        return made

    def going(self, name: str) -> Made:
        """Adds a study that runs."""
        made = Made(self.folder, name)
        made.trial(0.4, preset="base")
        status(made, "running", **ALIVE)
        self.drive(name, ["sleep", "600"])
        self._until(name, "running")
        return made

    def _until(self, name: str, state: str) -> None:
        def stands() -> bool:
            return [each.state for each in self.studies.ls(search=name)] == [state]

        until(stands, what=f"{name} {state}")


KINDS = ["local", "service", pytest.param("ray_jobs", marks=pytest.mark.ray)]


@pytest.fixture(scope="module", params=KINDS)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Each backend, with the finished study `ended`."""
    folder = tmp_path_factory.mktemp(request.param) / "store"
    with opened(request, folder) as found:
        found.ended("ended")
        yield found


@contextmanager
def opened(request: pytest.FixtureRequest, folder: Path) -> Iterator[Backend]:
    if request.param == "local":
        yield Backend("local", LocalStudies(Store.open(str(folder))), folder)
    elif request.param == "service":
        with Served(folder) as served, cbe.connect(served.url) as client:
            yield Backend("service", client, folder)
    else:
        from cbe.service.clients.ray_jobs import RayJobsStudies  # loads Ray

        address = request.getfixturevalue("head").address
        jobs = jobs_at(address, str(folder))
        about = {STORE: str(folder)}
        try:
            yield Backend(
                "ray_jobs",
                RayJobsStudies(address),
                folder,
                lambda study, command: jobs.submit(study, command, about),
            )
        finally:
            end_jobs(address, folder)
            for study in {job.study for job in jobs.all().values()}:
                jobs.delete(study)


def test_studies_are_listed_by_state_and_by_what_they_are_called(backend: Backend) -> None:
    backend.going("listed")
    states = {each.study: each.state for each in backend.studies.ls()}
    assert (states["ended"], states["listed"]) == ("finished", "running")
    assert "ended" not in {each.study for each in backend.studies.ls(state="running")}
    assert [each.study for each in backend.studies.ls(search="ENDE")] == ["ended"]
    assert backend.studies.ls(owner="nobody") == []


def test_a_study_is_shown_as_its_store_has_it(backend: Backend) -> None:
    shown, stored = backend.studies.show("ended"), details(backend.store, "ended")
    assert (shown.overview, shown.trials) == (stored.overview, stored.trials)


def test_a_study_that_has_ended_is_watched_once(backend: Backend) -> None:
    (seen,) = backend.studies.watch("ended")
    assert seen == backend.studies.show("ended")


def test_trials_and_answers_are_those_of_the_store(backend: Backend) -> None:
    studies, folder = backend.studies, backend.store.study("ended")
    assert studies.trial("ended", "t0002") == trial(backend.store, "ended", "t0002")
    assert studies.best("ended", 3, "ensemble_heads <= 4") == best(folder, 3, where="ensemble_heads <= 4")
    rows = studies.sql("select trial, objective from trials order by trial", "ended").to_pylist()
    assert rows == folder.table("trials", ["trial", "objective"]).sort_by("trial").to_pylist()
    page = studies.report("ended")
    assert page.startswith("<!doctype html>") and best(folder).ranked[0].config_id in page


def test_all_studies_are_compared_where_they_have_one_store(backend: Backend) -> None:
    query = "select count(*) as n from trials where study = 'ended'"
    if backend.kind == "ray_jobs":
        for ask in (backend.studies.best_of_all, lambda: backend.studies.sql(query)):
            with pytest.raises(InputError, match="read the store with --store"):
                ask()
    else:
        assert backend.studies.best_of_all(2) == best_of_all(backend.store, 2)
        assert backend.studies.sql(query).to_pylist() == [{"n": len(details(backend.store, "ended").trials)}]


def test_a_study_that_runs_is_asked_to_stop_and_one_that_does_not_is_refused(backend: Backend) -> None:
    made = backend.going("stops")
    assert backend.studies.stop("stops").overview.under_way
    assert stop_was_asked(made.folder)
    with pytest.raises(InputError, match="ended: is not running; there is nothing to stop"):
        backend.studies.stop("ended")


def test_a_study_that_runs_is_neither_changed_nor_deleted(backend: Backend) -> None:
    made = backend.going("runs")
    with pytest.raises(InputError, match="runs: is running"):
        backend.studies.resume("runs", ["budget.trials=20"])
    with pytest.raises(InputError):
        backend.studies.delete("runs")
    assert made.folder.config() == made.study


@pytest.mark.parametrize("change", ["budget.trials", "=3", "budget..trials=3", "budget.trials=[1"])
def test_a_change_that_is_none_is_refused(backend: Backend, change: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        backend.studies.resume("ended", [change])


@pytest.mark.parametrize("name", ["t9999", "t0000"])
def test_a_trial_that_has_not_failed_is_not_tried_again(backend: Backend, name: str) -> None:
    with pytest.raises(InputError, match=f"--retry {name}: ended has no failed trial of that name"):
        backend.studies.resume("ended", retry=[name])
    assert backend.store.study("ended").read("retry.json") is None


def test_a_deleted_study_is_gone_or_the_refusal_says_where_to_delete_it(backend: Backend) -> None:
    made = backend.ended("deleted")
    if backend.kind == "ray_jobs":
        with pytest.raises(InputError, match="--store"):
            backend.studies.delete("deleted")
        assert made.folder.exists()
    else:
        backend.studies.delete("deleted")
        assert not made.folder.exists()
        until(lambda: not backend.studies.ls(search="deleted"), what="the deletion")


def test_the_same_file_is_the_same_study_and_another_one_of_its_name_is_refused(
    backend: Backend, tmp_path: Path
) -> None:
    file = tmp_path / "ended.yaml"
    file.write_text(yaml.safe_dump(backend.store.study("ended").config().to_plain()))  # type: ignore[union-attr]
    store = str(backend.folder) if backend.kind == "ray_jobs" else None
    if backend.kind == "local":
        with pytest.raises(InputError, match=f"`cbe run {file}` runs it here"):
            backend.studies.submit(file)
        return
    assert backend.studies.submit(file, store=store).state == "finished"
    with pytest.raises(ConfigError, match=r"training\.lr: stored is 0\.06, now it is 0\.05"):
        backend.studies.submit(file, settings=["training.lr=0.05"], store=store)


def test_the_log_of_a_driver_is_where_it_runs(backend: Backend) -> None:
    if backend.kind == "ray_jobs":
        assert "the driver's word" in list(backend.studies.logs("ended"))
    else:
        says = {"local": "give --address .* watch it with `cbe show ended", "service": "no Ray at"}
        with pytest.raises(CbeError, match=says[backend.kind]):
            list(backend.studies.logs("ended"))


Verb = Callable[[Studies, str], Any]
VERBS: dict[str, Verb] = {
    "show": lambda studies, name: studies.show(name),
    "watch": lambda studies, name: next(studies.watch(name)),
    "trial": lambda studies, name: studies.trial(name, "t0000"),
    "logs": lambda studies, name: list(studies.logs(name)),
    "stop": lambda studies, name: studies.stop(name),
    "resume": lambda studies, name: studies.resume(name),
    "delete": lambda studies, name: studies.delete(name),
    "best": lambda studies, name: studies.best(name),
    "sql": lambda studies, name: studies.sql("select 1", name),
    "report": lambda studies, name: studies.report(name),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_name_that_is_not_there_is_refused_by_every_verb(backend: Backend, verb: str) -> None:
    with pytest.raises(InputError, match="nobody"):
        VERBS[verb](backend.studies, "nobody")


def test_a_trial_that_is_not_there_is_refused(backend: Backend) -> None:
    with pytest.raises(InputError, match="t9999"):
        backend.studies.trial("ended", "t9999")


def test_the_command_that_is_told_reaches_the_same_study(
    backend: Backend, cbe_: Cbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = json.loads(json.dumps(backend.studies.show("ended").to_plain()))

    def typed() -> Sequence[str]:
        return shlex.split(backend.studies.command("show", "ended"))[1:]

    assert len(typed()) == 4
    assert json.loads(cbe_(*typed(), "--json").out) == shown
    variable = "CBE_STORE" if backend.kind == "local" else "CBE_ADDRESS"
    monkeypatch.setenv(variable, backend.studies.url)
    assert typed() == ["show", "ended"]
    assert json.loads(cbe_(*typed(), "--json").out) == shown
