"""`cbe token`: who may use the service of a store."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cbe.cli import stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from cbe.service.auth.tokens import Token

app = typer.Typer(
    help="Create, list and revoke access tokens of a service.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_BY = "cli"  # who did it, in the audit


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who gets the token: letters, digits and . _ - @")],
    role: Annotated[
        Literal["read", "submit", "admin"],
        typer.Option(help="read: see everything. submit: also run own studies. admin: everything."),
    ],
    days: Annotated[int | None, typer.Option(help="Days until it expires. Default: never.")] = None,
    store: stores.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create a token and print it. It is not shown again."""
    from cbe.cli.console import say
    from cbe.service.auth.tokens import Role, Tokens

    place = stores.opened(store)
    tokens = Tokens(place)
    first = not tokens.any_made()
    text, token = tokens.create(name, Role(role), days, by=_BY)
    print(json.dumps({"token": text, **token.to_plain()}, indent=2) if as_json else text)
    until = f"until {_time(token.expires)}" if token.expires else "until it is revoked"
    say(
        f"{token.name} has the role {token.role} in the service of {place.uri} {until}.\n"
        "This token is shown once: hand it on where nobody else reads. cbe takes it as CBE_TOKEN."
    )
    if first:
        say(
            "It is the first: from now on nobody is let in without one, and studies that were submitted "
            "without are steered by the role admin alone."
        )


@app.command("list")
def list_(
    store: stores.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List all tokens, without their secrets."""
    from cbe.service.auth.tokens import Tokens

    place = stores.existing(store)
    found = Tokens(place).list()
    if as_json:
        print(json.dumps([{**token.to_plain(), "state": token.state()} for token in found], indent=2))
        return
    from cbe.cli.console import out, say

    if found:
        out.print(_table(found))
    else:
        say(f"{place.uri}: has no tokens; make one with `cbe token create NAME --role read`")


@app.command()
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The token's ID from `cbe token list`.")],
    store: stores.Option = None,
) -> None:
    """Revoke a token permanently."""
    from cbe.cli.console import say
    from cbe.service.auth.tokens import Tokens

    token = Tokens(stores.existing(store)).revoke(id_, by=_BY)
    say(f"{token.id} of {token.name} is revoked: it changes nothing more, and stops reading within seconds.")


def _table(found: Sequence[Token]) -> Table:
    from cbe.cli.study_view import plain_table

    table = plain_table(("id", "name", "role", "state"), ("created", "expires"))
    for token in found:
        times = (_time(token.created), _time(token.expires) if token.expires else "never")
        table.add_row(token.id, token.name, token.role, token.state(), *times)
    return table


def _time(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M")
