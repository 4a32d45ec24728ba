"""`cbe report`: a study as one page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cbe.cli import remote, stores
from cbe.cli.studies import Name


def command(
    name: Name,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write. Default: NAME.html.")
    ] = None,
    store: stores.Option = None,
    address: remote.Address = None,
) -> None:
    """Write a study's report as one HTML file that opens offline."""
    from cbe.cli.console import say
    from cbe.report.page.render import save, write_report

    path, elsewhere = out or Path(f"{name}.html"), remote.address_of(address, store)
    if elsewhere:
        size = save(partial(remote.service_at(elsewhere, "report").report, name), path, name)
    else:
        folder = stores.existing(store).study(name)
        size = write_report(folder, path, stores.again("report", folder))
    say(f"{path}: {size / 1e6:.1f} MB; open it in a browser")
