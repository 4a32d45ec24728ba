"""`cbe run` and `cbe resume`: a study from its file to its answer, watched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import data, remote, stores
from cbe.cli.studies import Name
from cbe.errors import InputError
from cbe.spec import StudyConfig, read_config

if TYPE_CHECKING:
    from cbe.store.folder import Store, StudyFolder
    from cbe.study.progress import Progress

HALTED = 3  # the exit code where the budget was spent, or somebody asked the study to stop

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a value of the file, e.g. budget.trials=40. May be repeated."),
]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster: auto or ray://…. Default: start Ray on this machine.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def run(
    file: Annotated[Path, typer.Argument(help="A study file (YAML).")],
    settings: Settings = None,
    store: stores.Option = None,
    address: Address = None,
    go_on: Annotated[
        bool,
        typer.Option("--resume", help="If the store has the study already, continue it with this file."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a study and show its best config."""
    from cbe.study.lifecycle import amend, begun

    if remote.is_service(address):
        raise InputError(
            f"--address {address}: `cbe run` drives a study from here; hand it over to a service with "
            f"`cbe submit {file} --address {address}`"
        )
    study = read_config(StudyConfig, file, settings or ())
    place = stores.opened(store, study.storage.store)
    folder = place.study(study.name)
    if go_on and folder.exists():
        _go_on(amend(folder, file=file, settings=settings or ()), place, address, as_json)
        return
    try:
        with begun(study, place):
            data.print_data_summary(study)
            progress = _drive(study, place, address)
    except KeyboardInterrupt:
        if folder.exists():
            raise
        from cbe.cli.console import say

        say(f"{study.name}: stopped before its first trial; {place.uri} keeps nothing of it.")
        raise typer.Exit(remote.INTERRUPTED) from None
    _close(progress, study, folder, as_json)


def resume(
    name: Name,
    file: Annotated[Path | None, typer.Option(help="An edited version of the study file.")] = None,
    settings: Settings = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="A new limit, e.g. usd=20 or gpu_hours=8. Short for --set budget.usd=20."),
    ] = None,
    store: stores.Option = None,
    address: Annotated[
        str | None,
        typer.Option(help="A Ray cluster (auto or ray://…) or a CBE service (http…). Default: CBE_ADDRESS."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a study that was stopped or interrupted."""
    from cbe.study.lifecycle import amend, load

    changed = [*(settings or ()), *(f"budget.{limit}" for limit in budget or ())]
    elsewhere = address if address and not remote.is_service(address) else remote.address_of(address, store)
    if elsewhere and remote.is_service(elsewhere):
        _resume_there(name, elsewhere, file, changed, as_json)
        return
    place = stores.opened(store)
    _, folder = load(place, name)
    _go_on(amend(folder, file=file, settings=changed), place, address, as_json)


def _resume_there(name: str, address: str, file: Path | None, settings: Sequence[str], as_json: bool) -> None:
    from cbe.cli.console import say

    if file is not None:
        raise InputError(
            f"--file: {address} has the study's file; say what is to change with --set key=value"
        )
    study_status = remote.at(address).resume(name, **remote.settings_of(settings))
    if as_json:
        print(json.dumps(study_status.to_plain(), indent=2))
    else:
        say(f"{remote.told(study_status)}\nWatch it with: {remote.again('show', name, address)} --watch")


def _go_on(study: StudyConfig, store: Store, address: str | None, as_json: bool) -> None:
    """Runs what is left of a study; the answer at once where nothing is."""
    from cbe.store.states import status

    folder = store.study(study.name)
    if status(folder).state == "finished":
        _answer(study, folder, as_json)
    else:
        _close(_drive(study, store, address), study, folder, as_json)


def _drive(study: StudyConfig, store: Store, address: str | None) -> Progress:
    from cbe.cli.console import err, say
    from cbe.cli.progress.live import live

    if err.is_terminal:
        say(f"{study.name}: starting Ray …", "dim")
    from cbe.study.engine import run  # takes seconds

    return run(study, store, watch=live, address=address)


def _close(progress: Progress, study: StudyConfig, folder: StudyFolder, as_json: bool) -> None:
    """Says where a study ran and what it found; the exit code says why it stopped."""
    from cbe.cli.console import say
    from cbe.report.machines import machines

    reason = progress.stop_reason
    if seen := machines(folder):
        say(f"cluster: {seen.told()}")
    if reason is None:
        _answer(study, folder, as_json)
        return
    with suppress(InputError):  # it may have stopped too early for an answer
        _answer(study, folder, as_json)
    raise typer.Exit(remote.INTERRUPTED if reason == "interrupted" else HALTED)


def _answer(study: StudyConfig, folder: StudyFolder, as_json: bool) -> None:
    from cbe.cli.best import print_answer
    from cbe.report.best import best

    print_answer(best(folder, study=study), stores.again("best", folder), as_json=as_json)
