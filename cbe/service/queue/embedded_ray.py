"""A Ray cluster of the service's own, on this machine, where it was given no other.

It lives in a process session of its own: a service that is killed leaves it and its studies running, and the
next service of the same store finds it again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from cbe.errors import RunError
from cbe.files import replace_file
from cbe.store.states import born

START_S = 60.0
SECRETS = ("CBE_NOTIFY", "CBE_TOKEN")  # which are the service's, and no trial's

log = logging.getLogger("cbe.service")

_started: dict[int, subprocess.Popen[bytes]] = {}  # by this process, which is to take note of their end


@dataclass(frozen=True)
class Head:
    address: str  # of its dashboard
    pid: int
    born: int | None

    @property
    def alive(self) -> bool:
        return self.born is not None and born(self.pid) == self.born

    def end(self) -> None:
        """Ends all of its processes, and those that it has started."""
        for pid in _session(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process = _started.pop(self.pid, None)
        if process is not None:
            process.wait()


def started(store: str, cpus: int | None = None, port: int | None = None) -> Head:
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
    told = place / "head.json"
    with suppress(OSError, ValueError, TypeError):
        found = Head(**json.loads(told.read_text()))
        if found.alive:
            return _ready(found, place)
    found = _start(place, cpus, port or _free_port())
    # At once: a service that is killed while it waits must not leave a head that nobody knows of.
    content = json.dumps({"address": found.address, "pid": found.pid, "born": found.born})
    replace_file(told, lambda file: file.write(content.encode()))
    return _ready(found, place)


def _start(place: Path, cpus: int | None, dashboard: int) -> Head:
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
    log = place / "head.log"
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    _started[process.pid] = process
    return Head(f"http://127.0.0.1:{dashboard}", process.pid, born(process.pid))


def _ready(head: Head, place: Path) -> Head:
    """The head, once its dashboard answers."""
    deadline = time.monotonic() + START_S
    with httpx.Client(base_url=head.address, timeout=2) as http:  # one: each loads all certificates
        while not _answers(http):
            process = _started.get(head.pid)
            over = process.poll() is not None if process else not head.alive
            if over or time.monotonic() > deadline:
                head.end()
                raise RunError(f"Ray could not be started on this machine; {place / 'head.log'} says why")
            time.sleep(0.1)
    return head


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


def _session(leader: int) -> list[int]:
    """The processes of a session, those that have left its group included, its leader last."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if entry.name.isdigit() and int(state[3]) == leader:
                found.append(int(entry.name))
    return sorted(found, key=lambda pid: pid == leader)
