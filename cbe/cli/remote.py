"""Studies that run elsewhere: at which address, how they are watched, and the commands that reach them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbe.errors import InputError

if TYPE_CHECKING:
    from cbe.service.clients.interface import Remote
    from cbe.service.clients.service import Client
    from cbe.service.live.study_status import StudyStatus
    from cbe.study.overview import Details

INTERRUPTED = 130

Again = Callable[[str], str]  # the command of a verb for one study, as it can be typed here

Address = Annotated[
    str | None,
    typer.Option(
        help="URL of a CBE service to use instead of a store. Default: CBE_ADDRESS. Token: CBE_TOKEN."
    ),
]


def is_service(address: str | None) -> bool:
    """Whether an address is one for HTTP, and not one of Ray's own."""
    return bool(address) and str(address).startswith(("http://", "https://"))


def address_of(address: str | None, store: str | None = None) -> str | None:
    """Where a command is to be answered; None: here, from a store.

    A store that is named on the command line goes before an address that is only in the environment.
    """
    if address and is_named(store):
        raise InputError("--address and --store: both were given; a service has its own; give one of the two")
    return address or (None if is_named(store) else os.environ.get("CBE_ADDRESS")) or None


def is_named(store: str | None) -> bool:
    """Whether a store was named on the command line, and not only in the environment."""
    return store is not None and store != os.environ.get("CBE_STORE")


def at(address: str) -> Remote:
    """Whoever runs studies at an address."""
    from cbe.service.clients.connect import at as found_at

    return found_at(address)


def service_at(address: str, verb: str) -> Client:
    """The service at an address; refuses a Ray cluster, which has no answers."""
    from cbe.service.clients.service import Client

    found = at(address)
    if not isinstance(found, Client):
        raise InputError(
            f"{address}: is a Ray cluster without a CBE service, which cannot tell `{verb}`; read the store "
            "with --store, or give the address of a service"
        )
    return found


def again(verb: str, name: str, address: str) -> str:
    """The command that does something with a study there, as it can be typed here."""
    told = "" if address == os.environ.get("CBE_ADDRESS") else f" --address {shlex.quote(address)}"
    return f"cbe {verb} {name}{told}"


def told(study_status: StudyStatus) -> str:
    """A study's state in words."""
    place = f", place {study_status.place} in the queue" if study_status.place else ""
    why = f" ({study_status.overview.why})" if study_status.overview.why else ""
    return f"{study_status.study}: {study_status.state}{place}{why}"


def settings_of(given: Iterable[str]) -> dict[str, Any]:
    """`--set key=value` options as values."""
    import yaml

    found: dict[str, Any] = {}
    for setting in given:
        key, sign, text = (part.strip() for part in setting.partition("="))
        if not sign or not key:
            raise InputError(f"--set {setting}: wanted key=value, as budget.trials=80")
        try:
            found[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise InputError(f"--set {setting}: {text!r} is not a value; quote it") from None
    return found


def news(remote: Remote, name: str) -> Iterator[Details]:
    """A study elsewhere as it goes on."""
    from cbe.service.clients.service import Client
    from cbe.study.overview import followed

    found = remote.watch(name) if isinstance(remote, Client) else followed(partial(remote.show, name))
    return map(_with_place, found)


def watch(found: Iterable[Details], name: str, again: Again) -> Details:
    """Shows a study for as long as it goes on, then what to do next; Ctrl-C ends the watching alone."""
    from cbe.cli.console import say
    from cbe.cli.progress.live import more, watched

    stop = f"Stop it with: {again('stop')}"
    try:
        last = watched(found, f"Ctrl-C ends the watching; the study goes on.\n{stop}")
    except KeyboardInterrupt:
        say(f"No longer watched; {name} goes on.\nWatch it again with: {again('show')} --watch\n{stop}")
        raise typer.Exit(INTERRUPTED) from None
    about = last.overview
    why = f" ({about.why})" if about.why else ""
    resume = f"{again('resume')}{more(about.why)}"
    ahead = f"Answer: {again('best')}" if about.state == "finished" else f"Go on with: {resume}"
    say(f"{name}: {about.state}{why}\n{ahead}")
    return last


def _with_place(found: Details) -> Details:
    """A study that waits says what for."""
    from cbe.service.live.study_status import StudyStatusDetails

    if not isinstance(found, StudyStatusDetails) or not found.study_status.place or found.overview.why:
        return found
    return replace(
        found, overview=replace(found.overview, why=f"place {found.study_status.place} in the queue")
    )
