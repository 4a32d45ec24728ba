"""`cbe submit` and `cbe logs`: studies that are handed to a service or a cluster."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from cbe.cli import remote, stores, trials
from cbe.cli.run import HALTED, Settings
from cbe.errors import InputError
from cbe.spec import StudyConfig, read_config
from cbe.spec.files import text_to_send
from cbe.words import clean

if TYPE_CHECKING:
    from cbe.service.clients.interface import Remote

BROKEN = 1
_CODES = {"finished": 0, "stopped": HALTED}


def submit(
    file: Annotated[Path, typer.Argument(help="A study file (YAML).")],
    settings: Settings = None,
    address: remote.Address = None,
    priority: Annotated[int, typer.Option(help="Studies with a higher priority start first.")] = 0,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until the study ends, then its answer.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="CBE_STORE", help="Where to store the results on a Ray cluster without a service."
        ),
    ] = None,
    code: Annotated[
        Path | None, typer.Option(help="A folder with the cbe package to send to a Ray cluster.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the state, or with --watch the answer, as JSON.")
    ] = False,
) -> None:
    """Submit a study to a service or a Ray cluster. It runs on without you."""
    from cbe.cli.console import say

    study = read_config(StudyConfig, file, settings or ())
    place = _required(address, "submit", f"`cbe run {file}` runs it here")
    found = remote.at(place)
    text = text_to_send(StudyConfig, file, settings or (), same_machine=_checks_paths(found, place))
    study_status = found.submit(text, priority, store=_meant_for(found, store), code=code)
    again = partial(remote.again, name=study.name, address=place)
    if watch:
        raise typer.Exit(_watched(found, study.name, again, as_json))
    if as_json:
        print(json.dumps(study_status.to_plain(), indent=2))
    else:
        over = study_status.state == "finished"
        ahead = f"Answer: {again('best')}" if over else f"Watch it with: {again('show')} --watch"
        say(f"{remote.told(study_status)}\n{ahead}")


def logs(
    name: Annotated[str, typer.Argument(help="A study, or a trial, e.g. STUDY/t0004.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the study ends.")
    ] = False,
    store: stores.Option = None,
    address: remote.Address = None,
) -> None:
    """Print the log of a submitted study or of a trial."""
    if "/" in name:
        if follow:
            raise InputError(
                "--follow: is for a study; a trial's log is kept every few seconds; leave it out"
            )
        trials.logs(name, remote.address_of(address, store), store)
        return
    here = f"what runs here prints where it was started; watch it with `cbe show {name} --watch`"
    found = remote.at(_required(address, "logs", here))
    try:
        for line in found.logs(name, follow=follow):
            indent = line[: len(line) - len(line.lstrip(" "))]
            print(indent + clean(line), flush=follow)
    except KeyboardInterrupt:
        raise typer.Exit(remote.INTERRUPTED) from None


def _required(address: str | None, verb: str, otherwise: str) -> str:
    place = remote.address_of(address)
    if place is None:
        raise InputError(f"{verb}: where? give --address http(s)://…, or set CBE_ADDRESS; {otherwise}")
    return place


def _checks_paths(found: Remote, address: str) -> bool:
    """Whether paths of this machine can be meant: a service looks whether it sees them."""
    from cbe.service.auth.loopback import is_loopback
    from cbe.service.clients.service import Client

    return isinstance(found, Client) or is_loopback(urlsplit(address).hostname or "")


def _meant_for(found: Remote, store: str | None) -> str | None:
    """A store that is only in the environment is not said to a service, which has its own."""
    from cbe.service.clients.service import Client

    return store if remote.is_named(store) or not isinstance(found, Client) else None


def _watched(found: Remote, name: str, again: remote.Again, as_json: bool) -> int:
    """Shows a study to its end, and then its answer; gives the exit code."""
    from cbe.cli.best import print_answer
    from cbe.service.clients.service import Client

    last = remote.watch(remote.news(found, name), name, again)
    if isinstance(found, Client):
        with suppress(InputError):  # it may have ended too early for an answer
            print_answer(found.best(name), again("best"), as_json=as_json)
    return _CODES.get(last.overview.state, BROKEN)
