"""One service a store: one that slept longer than its lease finds its successor there, and ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cbe.store.folder import Store
from tests.conftest import free_port
from tests.service.conftest import CBE, NOBODY, text_of
from tests.waiting import until


@contextmanager
def serving(store: Store, where: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    command = [CBE, "serve", "--store", store.uri, "--port", str(port), "--ray", NOBODY]
    log = where / f"{port}.log"
    with log.open("w") as output, subprocess.Popen(command, stderr=output, text=True, cwd=where) as process:
        try:
            url = f"http://127.0.0.1:{port}"

            def answers() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return httpx.get(f"{url}/healthz").status_code == 200
                except httpx.TransportError:
                    return False

            until(answers, what="the service")
            yield process, url
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def test_a_service_that_slept_ends_when_another_has_taken_over_its_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBE_LEASE_S", "3")
    (tmp_path / "results").mkdir(exist_ok=True)
    with serving(store, tmp_path) as (first, _):
        first.send_signal(signal.SIGSTOP)
        with serving(store, tmp_path) as (second, url):
            first.send_signal(signal.SIGCONT)
            assert first.wait(60) == 1
            told = "".join(path.read_text() for path in tmp_path.glob("*.log"))
            assert f"process {second.pid} on " in told and "has taken over" in told
            assert second.poll() is None
            yaml = {"content-type": "application/yaml"}
            sent = httpx.post(f"{url}/api/studies", content=text_of("later"), headers=yaml, timeout=60)
            assert sent.status_code == 201 and store.names() == ["later"]
