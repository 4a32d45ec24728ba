"""`cbe report`: a study as one page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cbe.cli import backends, stores
from cbe.cli.studies import Name


def command(
    name: Name,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write. Default: NAME.html.")
    ] = None,
    store: stores.Option = None,
    address: backends.Address = None,
) -> None:
    """Write a study's report as one HTML file that opens offline."""
    from cbe.cli.console import say
    from cbe.report.page.render import save

    path = out or Path(f"{name}.html")
    size = save(partial(backends.opened(store, address).report, name), path, name)
    say(f"{path}: {size / 1e6:.1f} MB; open it in a browser")
