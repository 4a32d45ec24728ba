"""`cbe table`: the paper's tables, from the store."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cbe.cli import stores
from cbe.words import clean


def command(
    names: Annotated[list[str], typer.Argument(help="One study; for comparisons, one or more.")],
    kind: Annotated[
        Literal["comparisons", "ablation", "time", "cost"] | None,
        typer.Option(help="Which table of the paper. Default: chosen by what the study searches."),
    ] = None,
    format_: Annotated[
        Literal["markdown", "latex"], typer.Option("--format", help="Output format.")
    ] = "markdown",
    error: Annotated[
        Literal["last", "median", "best"],
        typer.Option(help="Use the last evaluation, the median of the last 20, or the best on validation."),
    ] = "last",
    store: stores.Option = None,
) -> None:
    """Print a table of the paper with your results beside the published ones."""
    from cbe.report.tables import latex, markdown, table

    place = stores.existing(store)
    made = table([place.study(name) for name in names], kind, error)
    print(clean((latex if format_ == "latex" else markdown)(made)))
