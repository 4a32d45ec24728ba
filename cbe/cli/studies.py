"""`cbe ls`, `cbe show`, `cbe stop` and `cbe delete`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cbe.cli import backends, stores, trials
from cbe.cli.study_view import print_details, study_list
from cbe.errors import InputError

Name = Annotated[str, typer.Argument(help="The study's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def ls(
    store: stores.Option = None,
    address: backends.Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the studies of a store or a service."""
    studies = backends.opened(store, address)
    found = studies.ls()
    if as_json:
        print(json.dumps([each.to_plain() for each in found], indent=2))
        return
    from cbe.cli.console import out, say

    if found:
        out.print(study_list(found, out.width))
    else:
        say(f"{studies.url}: holds no studies; begin one with `{studies.begin}`")
    for each in found:
        if each.state == "unreadable":
            say(f"{each.study}: {each.overview.reason}")


def show(
    name: Annotated[str, typer.Argument(help="A study, or a trial, e.g. STUDY/t0004.")],
    store: stores.Option = None,
    address: backends.Address = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it until it ends.")] = False,
    as_json: AsJson = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="For a trial: print its config as a file for `cbe train`.")
    ] = False,
) -> None:
    """Show the state of a study and its trials, or one trial."""
    if sum((watch, as_json, as_yaml)) > 1:
        raise InputError("--watch, --json and --yaml: several were given; give one of them")
    studies = backends.opened(store, address)
    if "/" in name:
        if watch:
            raise InputError(f"--watch: shows a whole study; give {name.partition('/')[0]}")
        trials.show(studies, name, as_json=as_json, as_yaml=as_yaml)
        return
    if as_yaml:
        raise InputError(
            f"--yaml: of which trial? give STUDY/TRIAL, as {name}/t0001; of the best config it is "
            f"`cbe best {name} --yaml`"
        )
    if watch:
        backends.watch(studies, name)
    elif as_json:
        print(json.dumps(studies.show(name).to_plain(), indent=2))
    else:
        print_details(studies.show(name), studies)


def stop(name: Name, store: stores.Option = None, address: backends.Address = None) -> None:
    """Stop a running study and keep its results."""
    from cbe.cli.console import say

    studies = backends.opened(store, address)
    say(f"{backends.status_line(studies.stop(name))}\nGo on with: {studies.command('resume', name)}")


def delete(
    name: Name,
    store: stores.Option = None,
    address: backends.Address = None,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm. Deleted results cannot be restored.")] = False,
) -> None:
    """Delete a study with all its results and checkpoints."""
    from cbe.cli.console import say

    studies = backends.opened(store, address)
    if not yes:
        studies.show(name)  # which refuses a name that is not there
        raise InputError(f"{name}: would be deleted with all its results; if that is meant, give --yes")
    studies.delete(name)
    say(f"{name}: deleted")
