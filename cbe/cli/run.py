"""`cbe run` and `cbe resume`: a study from its file to its answer, watched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import stores
from cbe.cli.studies import Name
from cbe.errors import InputError
from cbe.spec import StudyConfig, read_config

if TYPE_CHECKING:
    from cbe.store.folder import Store, StudyFolder

HALTED = 3  # the exit code where the budget was spent, or somebody asked the study to stop
INTERRUPTED = 130

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, as budget.trials=40; may be repeated")
]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster: auto, or ray://…; one of its own when left out")
]
AsJson = Annotated[bool, typer.Option("--json", help="The answer as an object for a program")]


def run(
    file: Annotated[Path, typer.Argument(help="A study file (YAML)")],
    settings: Settings = None,
    store: stores.Option = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run a study and say which config is best."""
    from cbe.study.start import begun

    study = read_config(StudyConfig, file, settings or ())
    place = stores.opened(store, study.storage.store)
    with begun(study, place):
        _drive(study, place, address, as_json)


def resume(
    name: Name,
    file: Annotated[Path | None, typer.Option(help="The study's file, edited")] = None,
    settings: Settings = None,
    store: stores.Option = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a study where it was stopped."""
    from cbe.study.control import status
    from cbe.study.start import amend, load

    place = stores.opened(store)
    _, folder = load(place, name)
    study = amend(folder, file=file, settings=settings or ())
    if status(folder).state == "finished":
        _answer(study, folder, as_json)
    else:
        _drive(study, place, address, as_json)


def _drive(study: StudyConfig, store: Store, address: str | None, as_json: bool) -> None:
    from cbe.cli.console import err
    from cbe.cli.live import Live
    from cbe.cli.talk import say

    if err.is_terminal:
        say(f"{study.name}: starting Ray …", "dim")
    from cbe.study.engine import run  # takes seconds

    halted = run(study, store, watch=Live, address=address).ledger.halted
    folder = store.study(study.name)
    if halted is None:
        _answer(study, folder, as_json)
        return
    with suppress(InputError):  # it may have stopped too early for an answer
        _answer(study, folder, as_json)
    raise typer.Exit(INTERRUPTED if halted == "interrupted" else HALTED)


def _answer(study: StudyConfig, folder: StudyFolder, as_json: bool) -> None:
    from cbe.cli.best import print_answer
    from cbe.report.best import best

    print_answer(best(folder, study=study), stores.again("best", folder), as_json=as_json)
