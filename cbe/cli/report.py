"""`cbe report`: a study as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbe.cli import stores
from cbe.cli.studies import Name


def command(
    name: Name,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write; left out: NAME.html")
    ] = None,
    store: stores.Option = None,
) -> None:
    """Write a study's report: one HTML file that opens anywhere."""
    from cbe.cli.talk import say
    from cbe.report.page.render import write_report

    folder = stores.existing(store).study(name)
    path = out or Path(f"{name}.html")
    size = write_report(folder, path, stores.again("report", folder))
    say(f"{path}: {size / 1e6:.1f} MB; open it in a browser")
