"""`cbe serve`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbe.cli import stores


def command(
    store: stores.Option = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; other than this machine wants tokens")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8321,
    ray: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS",
            help="A cluster's dashboard, as http://127.0.0.1:8265; left out: a cluster of its own, here",
        ),
    ] = None,
    studies: Annotated[int, typer.Option(min=1, help="How many may run at once")] = 2,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            envvar="CBE_NOTIFY", help="A webhook's URL, or slack:URL, told of what ends; may be repeated"
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate (PEM)")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM)")] = None,
    url: Annotated[
        str | None,
        typer.Option(help="How others reach it, as https://host of a proxy before it; wants tokens"),
    ] = None,
) -> None:
    """Take submissions, run them on a cluster and show them, over HTTP and as a web page."""
    from cbe.service.serve import Settings, serve

    where = store or stores.DEFAULT
    stores.opened(store)
    serve(Settings(where, host, port, ray, studies, notify or (), tls_cert, tls_key, url))
