"""The cluster that is this machine: the service, with a Ray of its own, as a process that stays."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from cbe.cluster.files import Document, at
from cbe.errors import InputError, RunError
from cbe.files import replace_file

START_S = 90.0
STOP_S = 60.0

_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True)
class Process:
    pid: int
    born: str  # when, as the kernel counts: a number may be given to another process later
    url: str

    @property
    def alive(self) -> bool:
        return _born(self.pid) == self.born


def up(document: Document) -> None:
    """Starts the service, unless it runs, and waits until it answers."""
    command, place, url = _wanted(document)
    running = _found(place)
    if running:
        print(f"{running.url} runs already, as process {running.pid}")
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    log = place.with_suffix(".log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    started = Process(process.pid, _born(process.pid), url)
    replace_file(place, lambda file: file.write(json.dumps(asdict(started)).encode()))
    deadline = time.monotonic() + START_S
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            process.wait()
            place.unlink()
            raise RunError(f"{shlex.join(command)} did not come up; {log} says why")
        time.sleep(0.1)
    print(f"{url}, as process {process.pid}; its log is {log}")


def down(document: Document) -> None:
    """Ends the service, which ends its Ray."""
    _, place, url = _wanted(document)
    running = _found(place)
    if not running:
        print(f"{url} does not run")
        return
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while running.alive:
        with suppress(ChildProcessError):
            os.waitpid(running.pid, os.WNOHANG)  # if it is a child of this process
        if time.monotonic() > deadline:
            raise RunError(f"process {running.pid} does not end; look into {place.with_suffix('.log')}")
        time.sleep(0.1)
    place.unlink()
    print(f"{url} is down")


def status(document: Document) -> None:
    """Says whether the service runs."""
    _, place, url = _wanted(document)
    running = _found(place)
    if not running:
        print(f"{url} does not run")
    else:
        state = "answers" if _answers(url) else "does not answer"
        print(f"{url} {state}, as process {running.pid}; its studies: cbe ls --address {url}")


def _wanted(document: Document) -> tuple[list[str], Path, str]:
    """The command of a file, where its process is written down, and the address of its service."""
    commands = at(document.plain, list, "head_start_ray_commands") or []
    words = shlex.split(str(commands[0])) if len(commands) == 1 else []
    if words[:2] != ["cbe", "serve"]:
        raise InputError(
            f"{document.where('head_start_ray_commands')}: wanted one command, `cbe serve …`; as in "
            "cluster/local.yaml"
        )
    options = dict(pairwise(words))
    store, port = options.get("--store", "results"), options.get("--port", "8321")
    if "://" in store:
        raise InputError(f"{document.where('head_start_ray_commands')}: --store {store}; wanted a folder")
    place = Path(store).expanduser() / f"{at(document.plain, str, 'cluster_name')}-cluster.json"
    command = [sys.executable, "-P", "-m", "cbe", *words[1:]]
    return command, place, f"http://127.0.0.1:{port}"


def _found(place: Path) -> Process | None:
    with suppress(OSError, ValueError, TypeError):
        found = Process(**json.loads(place.read_text("utf-8")))
        return found if found.alive else None
    return None


def _born(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _answers(url: str) -> bool:
    try:
        with _open(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except HTTPError:
        return True
    except (URLError, OSError):
        return False
