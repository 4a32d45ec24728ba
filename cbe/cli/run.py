"""`cbe run` and `cbe resume`: a study from its file to its answer, watched."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import backends, stores
from cbe.cli.studies import Name
from cbe.errors import InputError
from cbe.spec import StudyConfig, read_config

if TYPE_CHECKING:
    from cbe.service.clients.interface import Studies
    from cbe.service.live.study_status import StudyStatus

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
    if backends.is_http(address):
        raise InputError(
            f"--address {address}: `cbe run` drives a study from here; hand it over to a service with "
            f"`cbe submit {file} --address {address}`"
        )
    study = read_config(StudyConfig, file, settings or ())
    studies = backends.local(stores.opened(store, study.storage.store), address)
    try:
        _ended(studies, studies.run(study, resume=go_on), as_json)
    except KeyboardInterrupt:
        if studies.store.study(study.name).exists():
            raise
        from cbe.cli.console import say

        say(f"{study.name}: stopped before its first trial; {studies.url} keeps nothing of it.")
        raise typer.Exit(backends.INTERRUPTED) from None


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
    from cbe.cli.console import say

    changes = [*(settings or ()), *(f"budget.{limit}" for limit in budget or ())]
    studies = backends.opened(store, address, drives=True)
    study_status = studies.resume(name, changes, file=file)
    if not study_status.overview.under_way:
        _ended(studies, study_status, as_json)
    elif as_json:
        print(json.dumps(study_status.to_plain(), indent=2))
    else:
        say(f"{backends.status_line(study_status)}\nWatch it with: {studies.command('show', name)} --watch")


def _ended(studies: Studies, study_status: StudyStatus, as_json: bool) -> None:
    """Says where a study ran and what it found; the exit code says why it stopped."""
    from cbe.cli.best import print_answer
    from cbe.cli.console import say
    from cbe.report.machines import machines

    name, reason = study_status.study, study_status.overview.reason
    folder = studies.local_folder(name)
    if folder and (seen := machines(folder)):
        say(f"cluster: {seen.sentence()}")
    with suppress(InputError) if reason else nullcontext():  # it may have stopped too early for an answer
        print_answer(studies.best(name), studies.command("best", name), as_json=as_json)
    if reason:
        raise typer.Exit(backends.INTERRUPTED if reason == "interrupted" else HALTED)
