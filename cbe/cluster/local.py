"""The cluster that is this machine: the service, with a Ray of its own, as a process that stays."""

from __future__ import annotations

import shlex
import sys
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from cbe.cluster.files import Document, at
from cbe.errors import InputError, RunError
from cbe.processes import find, start

START_S = 90.0
STOP_S = 60.0

_open = build_opener(ProxyHandler({})).open


def up(document: Document) -> None:
    """Starts the service, unless it runs, and waits until it answers."""
    command, record, url = _wanted(document)
    running = find(record)
    if running:
        print(f"{running.address} runs already, as process {running.pid}")
        return
    log = record.with_suffix(".log")
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        service = start(command, url, record, log)
    except OSError as error:
        raise InputError(
            f"{document.where('head_start_ray_commands')}: {record.parent} cannot be written "
            f"({error.strerror}); give another folder as --store"
        ) from None
    if not service.wait_until(lambda: _answers(url), START_S):
        service.terminate(STOP_S)
        service.kill()
        record.unlink()
        raise RunError(f"{shlex.join(command)} did not come up; {log} says why")
    print(f"{url}, as process {service.pid}; its log is {log}")


def down(document: Document) -> None:
    """Ends the service, which ends its Ray."""
    _, record, url = _wanted(document)
    running = find(record)
    if not running:
        print(f"{url} does not run")
        return
    if not running.terminate(STOP_S):
        raise RunError(f"process {running.pid} does not end; look into {record.with_suffix('.log')}")
    record.unlink()
    print(f"{url} is down")


def status(document: Document) -> None:
    """Says whether the service runs."""
    _, record, url = _wanted(document)
    running = find(record)
    if not running:
        print(f"{url} does not run")
    else:
        state = "answers" if _answers(url) else "does not answer"
        print(f"{url} {state}, as process {running.pid}; its studies: cbe ls --address {url}")


def _wanted(document: Document) -> tuple[list[str], Path, str]:
    """The command of a file, where its process is written down, and the address of its service."""
    where = document.where("head_start_ray_commands")
    commands = at(document.plain, list, "head_start_ray_commands") or []
    try:
        words = shlex.split(str(commands[0])) if len(commands) == 1 else []
    except ValueError as error:
        raise InputError(f"{where}: {error}; correct the quotes") from None
    if words[:2] != ["cbe", "serve"]:
        raise InputError(f"{where}: wanted one command, `cbe serve …`; as in cluster/local.yaml")
    options = dict(pairwise(words))
    store, port = options.get("--store", "results"), options.get("--port", "8321")
    if "://" in store:
        raise InputError(f"{where}: --store {store}: wanted a folder; as in cluster/local.yaml")
    if not port.isdecimal():
        raise InputError(f"{where}: --port {port}: wanted a number; as in cluster/local.yaml")
    record = Path(store).expanduser() / f"{at(document.plain, str, 'cluster_name')}-cluster.json"
    command = [sys.executable, "-P", "-m", "cbe", *words[1:]]
    return command, record, f"http://127.0.0.1:{port}"


def _answers(url: str) -> bool:
    try:
        with _open(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except HTTPError:
        return True
    except (URLError, OSError):
        return False
