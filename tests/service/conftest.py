"""A real service over a real `ray start --head`: one cluster for all tests, a service for those of a file."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cbe.errors import CbeError
from cbe.processes import BackgroundProcess
from cbe.service.auth.tokens import Role, Tokens
from cbe.service.queue.ray_jobs import Jobs
from cbe.store.folder import Store, StudyFolder
from tests.cluster.conftest import forget_ray
from tests.conftest import free_port
from tests.study.conftest import study
from tests.waiting import until

CBE = str(Path(sys.executable).with_name("cbe"))
ENDLESS_SQL = "levenshtein(repeat('a', 300000), repeat('b', 300000)) > 0"
NOBODY = "http://127.0.0.1:9"  # where no Ray is


class Served:
    """A service as a process of its own, and a caller of it."""

    def __init__(
        self,
        store: Path,
        ray: str | None,
        *options: str,
        host: str = "127.0.0.1",
        token: str | None = None,
        trusted: Path | None = None,
    ) -> None:
        self.store, self.ray, self.options, self.token = store, ray, options, token
        self.port = free_port()
        self.url = f"{'https' if trusted else 'http'}://{host}:{self.port}"
        self.verify = ssl.create_default_context(cafile=str(trusted)) if trusted else True
        self.log = store.parent / f"{store.name}.log"
        self.start()

    def start(self) -> None:
        command = [CBE, "serve", "--store", str(self.store), "--port", str(self.port)]
        command += ["--ray", self.ray] if self.ray else []  # without: a cluster of its own
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *self.options], stdout=output, stderr=subprocess.STDOUT, cwd=self.store.parent
            )
        self.http = httpx.Client(
            base_url=self.url, headers=bearer(self.token), timeout=60, verify=self.verify
        )
        until(self._answers, 180, "the service")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.http.close()
        self.process.send_signal(number)
        self.process.wait(120)

    def folder(self, name: str) -> StudyFolder:
        return Store.open(str(self.store)).study(name)

    def state(self, name: str) -> str:
        return str(self.http.get(f"/api/studies/{name}").json()["state"])

    def submit(self, text: str, **query: Any) -> httpx.Response:
        return self.http.post(
            "/api/studies", content=text, params=query, headers={"content-type": "application/yaml"}
        )


def bearer(token: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def text_of(name: str = "small", **sections: Any) -> str:
    """The file of a study of seconds."""
    return yaml.safe_dump({**study(**sections).to_plain(), "name": name}, sort_keys=False)


@contextmanager
def serving(store: Path, ray: str | None, *options: str, **caller: Any) -> Iterator[Served]:
    served = Served(store, ray, *options, **caller)
    try:
        yield served
    finally:
        served.http.close()
        if served.process.poll() is None:
            served.kill(signal.SIGTERM)
        if ray not in (None, NOBODY):
            end_jobs(ray, store)


def jobs_at(ray: str, store: str | None = None) -> Jobs:
    """Asked with the token that holds now: a process keeps what it first learned of tokens, even of none."""
    forget_ray()
    return Jobs(ray, store)


def end_jobs(ray: str, store: Path) -> None:
    """Ends what a test, as one that failed, has left running: others want the same two cores."""
    jobs = jobs_at(ray, str(store))

    def running() -> list[str]:
        return [job.study for job in jobs.all().values() if job.active]

    with suppress(CbeError):  # that cluster is gone
        for study in running():
            jobs.stop(study)
        until(lambda: not running(), what="the end of all jobs")


@contextmanager
def place_taken(ray: str, name: str = "blocker") -> Iterator[None]:
    """Of the places for studies on a cluster a job has one that only sleeps."""
    jobs = jobs_at(ray)
    jobs.submit(name, ["sleep", "3600"], {})
    try:
        yield
    finally:
        jobs.stop(name)
        until(lambda: not (job := jobs.find(name)) or not job.active, 60, "the end of the sleeping job")
        jobs.delete(name)


@pytest.fixture(scope="module")
def served(head: BackgroundProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on the cluster, without tokens, on this machine alone."""
    with serving(tmp_path_factory.mktemp("served") / "store", head.address) as found:
        yield found


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A service with a token of every role, and one that was revoked; no cluster."""
    store = tmp_path_factory.mktemp("tokens") / "store"
    made = Tokens(Store.open(str(store)))
    found = {role.value: made.create(f"{role.value}er", role)[0] for role in Role}
    found["other"] = made.create("other", Role.submit)[0]
    found["revoked"], gone = made.create("gone", Role.admin)
    made.revoke(gone.id)
    with serving(store, NOBODY, token=found["admin"]) as service:
        yield service, found
