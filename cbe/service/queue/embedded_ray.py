"""A Ray cluster of the service's own, on this machine, where it was given no other.

It lives in a process session of its own: a service that is killed leaves it and its studies running, and the
next service of the same store finds it again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import httpx

from cbe.errors import RunError
from cbe.files import replace_file
from cbe.processes import BackgroundProcess, find, start

START_S = 60.0
SECRETS = ("CBE_NOTIFY", "CBE_TOKEN")  # which are the service's, and no trial's

log = logging.getLogger("cbe.service")


def started(store: str, cpus: int | None = None, port: int | None = None) -> BackgroundProcess:
    """The head that serves a store on this machine: the one that runs, or a new one, its dashboard at a port.

    Its token is put into the environment of this process, for the requests that go to it.
    """
    place = _private(store)
    token = place / "ray.token"
    if not token.exists():
        replace_file(token, lambda file: file.write(secrets.token_hex(32).encode()))
        token.chmod(0o600)  # in a folder that is nobody else's
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    log.info("Ray's token is in %s", token)
    head = find(place / "head.json") or _start(place, cpus, port or _free_port())
    with httpx.Client(base_url=head.address, timeout=2) as http:  # one: each loads all certificates
        if not head.wait_until(lambda: _answers(http), START_S):
            head.kill()
            raise RunError(f"Ray could not be started on this machine; {place / 'head.log'} says why")
    return head


def _start(place: Path, cpus: int | None, dashboard: int) -> BackgroundProcess:
    # A folder of its own: by the common one Ray hands a job to the machine's latest cluster, not to its own.
    files = place / "ray"
    shutil.rmtree(files, ignore_errors=True)  # what an earlier cluster has left
    port, client, agent = _free_port(), _free_port(), _free_port()
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", f"--ray-client-server-port={client}"),
        f"--dashboard-agent-listen-port={agent}",  # a second cluster takes no jobs without
        f"--temp-dir={files}",
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"),
        *([f"--num-cpus={cpus}"] if cpus else []),
    ]
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    address = f"http://127.0.0.1:{dashboard}"
    return start(command, address, place / "head.json", place / "head.log", environment)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/api/version").status_code in (200, 401)
    except httpx.HTTPError:
        return False


def _private(store: str) -> Path:
    """A folder of this user's alone, the same for the same store."""
    digest = hashlib.sha256(store.encode()).hexdigest()[:12]
    place = Path(tempfile.gettempdir()) / f"cbe-{os.getuid()}-{digest}"
    place.mkdir(mode=0o700, exist_ok=True)
    about = place.stat()
    if place.is_symlink() or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise RunError(f"{place}: belongs to somebody else or can be read by others; remove it")
    return place


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
