"""`cbe export`: a study's tables for other programs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cbe.cli import stores
from cbe.cli.studies import Name


def command(
    name: Name,
    to: Annotated[
        Literal["csv", "parquet", "optuna"],
        typer.Option(help="csv or parquet: a folder with one file per table. optuna: a SQLite storage."),
    ],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="Where to write. Default: NAME-csv, NAME-parquet or NAME.db."),
    ] = None,
    store: stores.Option = None,
) -> None:
    """Export a study as CSV, Parquet or an Optuna storage."""
    import shlex

    from cbe.cli.console import say
    from cbe.report.export import export
    from cbe.words import plural

    made = export(stores.existing(store).study(name), to, out)
    rows = ", ".join(f"{table} {count:,}" for table, count in made.rows.items())
    if to == "optuna":
        kept = f"; {plural(made.left_out, 'trial')} left out, of the confirmation or outside the search space"
        say(f"{made.path}: {plural(made.rows['trials'], 'trial')}{kept if made.left_out else ''}")
        say(f"Look at it: optuna-dashboard {shlex.quote(f'sqlite:///{made.path}')}")
    else:
        say(f"{made.path}: rows of {rows}")
