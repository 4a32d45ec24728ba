"""`cbe submit` and `cbe logs`: studies that a service or a cluster drives."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import backends, stores, trials
from cbe.cli.run import HALTED, Settings
from cbe.errors import InputError
from cbe.spec import StudyConfig, read_config
from cbe.words import clean

if TYPE_CHECKING:
    from cbe.service.clients.interface import Studies

BROKEN = 1
_CODES = {"finished": 0, "stopped": HALTED}


def submit(
    file: Annotated[Path, typer.Argument(help="A study file (YAML).")],
    settings: Settings = None,
    address: backends.Address = None,
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
    studies = backends.opened(None, address)
    named = store if backends.is_named(store) else None
    study_status = studies.submit(file, priority, settings=settings or (), store=named, code=code)
    if watch:
        raise typer.Exit(_watched(studies, study.name, as_json))
    if as_json:
        print(json.dumps(study_status.to_plain(), indent=2))
    else:
        ahead = f"Watch it with: {studies.command('show', study.name)} --watch"
        if study_status.state == "finished":
            ahead = f"Answer: {studies.command('best', study.name)}"
        say(f"{backends.status_line(study_status)}\n{ahead}")


def logs(
    name: Annotated[str, typer.Argument(help="A study, or a trial, e.g. STUDY/t0004.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the study ends.")
    ] = False,
    store: stores.Option = None,
    address: backends.Address = None,
) -> None:
    """Print the log of a submitted study or of a trial."""
    studies = backends.opened(store, address)
    if "/" in name:
        if follow:
            raise InputError(
                "--follow: is for a study; a trial's log is kept every few seconds; leave it out"
            )
        trials.logs(studies, name)
        return
    try:
        for line in studies.logs(name, follow=follow):
            indent = line[: len(line) - len(line.lstrip(" "))]
            print(indent + clean(line), flush=follow)
    except KeyboardInterrupt:
        raise typer.Exit(backends.INTERRUPTED) from None


def _watched(studies: Studies, name: str, as_json: bool) -> int:
    """Shows a study to its end, and then its answer; gives the exit code."""
    from cbe.cli.best import print_answer

    last = backends.watch(studies, name)
    with suppress(InputError):  # it may have ended too early for an answer
        print_answer(studies.best(name), studies.command("best", name), as_json=as_json)
    return _CODES.get(last.overview.state, BROKEN)
