"""`cbe serve`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbe.cli import stores


def command(
    store: stores.Option = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8321,
    ray: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS",
            help="Ray dashboard of a cluster, e.g. http://127.0.0.1:8265. Default: Ray on this machine.",
        ),
    ] = None,
    studies: Annotated[int, typer.Option(min=1, help="How many studies run at once.")] = 2,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            envvar="CBE_NOTIFY", help="Webhook URL, or slack:URL, to call when a study ends. Repeatable."
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="TLS private key (PEM).")] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Public URL behind a proxy, e.g. https://host. Needs a token."),
    ] = None,
) -> None:
    """Start a service that runs submitted studies, with a web page and a REST API."""
    from cbe.service.serve import Settings, serve
    from cbe.store.folder import DEFAULT

    where = store or DEFAULT
    stores.opened(store)
    serve(Settings(where, host, port, ray, studies, notify or (), tls_cert, tls_key, url))
