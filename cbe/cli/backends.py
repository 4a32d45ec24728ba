"""The studies that a command means: those of a store, of a service or of a Ray cluster alone."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbe.cli import data, stores
from cbe.errors import InputError
from cbe.spec import StudyConfig

if TYPE_CHECKING:
    from cbe.service.clients.interface import Studies
    from cbe.service.clients.local import LocalStudies
    from cbe.service.live.study_status import StudyStatus
    from cbe.store.folder import Store
    from cbe.study.overview import Details
    from cbe.study.progress import Progress

INTERRUPTED = 130

Address = Annotated[
    str | None,
    typer.Option(
        help="URL of a CBE service to use instead of a store. Default: CBE_ADDRESS. Token: CBE_TOKEN."
    ),
]


def opened(store: str | None, address: str | None = None, *, drives: bool = False) -> Studies:
    """The studies at an address, or else of a store.

    A store that is named on the command line goes before an address that is only in the environment. A
    command that drives studies from here may be given an address of Ray's own, which is not one for HTTP.
    """
    if drives and address and not is_http(address):
        return local(stores.existing(store), address)
    if address and is_named(store):
        raise InputError("--address and --store: both were given; a service has its own; give one of the two")
    url = address or (None if is_named(store) else os.environ.get("CBE_ADDRESS"))
    if not url or (drives and not is_http(url)):
        return local(stores.existing(store))
    from cbe.service.clients.connect import at

    return at(url)


def local(store: Store, address: str | None = None) -> LocalStudies:
    """The studies of a store, driven by this process on a Ray cluster, and shown meanwhile."""
    from cbe.service.clients.local import LocalStudies

    return LocalStudies(store, address, _shown, _announce)


def is_http(address: str | None) -> bool:
    """Whether an address is one for HTTP, and not one of Ray's own."""
    return bool(address) and str(address).startswith(("http://", "https://"))


def is_named(store: str | None) -> bool:
    """Whether a store was named on the command line, and not only in the environment."""
    return store is not None and store != os.environ.get("CBE_STORE")


def status_line(study_status: StudyStatus) -> str:
    """A study's state in words."""
    position = f", place {study_status.queue_position} in the queue" if study_status.queue_position else ""
    reason = f" ({study_status.overview.reason})" if study_status.overview.reason else ""
    return f"{study_status.study}: {study_status.state}{position}{reason}"


def watch(studies: Studies, name: str) -> Details:
    """Shows a study for as long as it goes on, then what to do next; Ctrl-C ends the watching alone."""
    from cbe.cli.console import say
    from cbe.cli.progress.live import more, watched

    stop = f"Stop it with: {studies.command('stop', name)}"
    try:
        found = map(_with_place, studies.watch(name))
        last = watched(found, f"Ctrl-C ends the watching; the study goes on.\n{stop}")
    except KeyboardInterrupt:
        again = f"Watch it again with: {studies.command('show', name)} --watch"
        say(f"No longer watched; {name} goes on.\n{again}\n{stop}")
        raise typer.Exit(INTERRUPTED) from None
    about = last.overview
    reason = f" ({about.reason})" if about.reason else ""
    resume = f"{studies.command('resume', name)}{more(about.reason)}"
    finished = about.state == "finished"
    ahead = f"Answer: {studies.command('best', name)}" if finished else f"Go on with: {resume}"
    say(f"{name}: {about.state}{reason}\n{ahead}")
    return last


def _with_place(found: Details) -> Details:
    """A study that waits says what for."""
    from cbe.service.live.study_status import StudyStatusDetails

    position = found.study_status.queue_position if isinstance(found, StudyStatusDetails) else None
    if not position or found.overview.reason:
        return found
    return replace(found, overview=replace(found.overview, reason=f"place {position} in the queue"))


def _shown(progress: Progress) -> AbstractContextManager[Any]:
    from cbe.cli.progress.live import live

    return live(progress)


def _announce(study: StudyConfig, new: bool) -> None:
    """What is said before a driver starts, of which Ray takes seconds."""
    from cbe.cli.console import err, say

    if new:
        data.print_data_summary(study)
    if err.is_terminal:
        say(f"{study.name}: starting Ray …", "dim")
