"""Which store a command speaks of."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.errors import InputError

if TYPE_CHECKING:
    from cbe.store.folder import Store

Option = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="CBE_STORE", help="Where the results are: a folder, or s3://…, gs://…, abfs://…."
    ),
]


def opened(store: str | None, otherwise: str | None = None) -> Store:
    """The store a command was given."""
    from cbe.store.folder import DEFAULT, Store

    place = store or otherwise or DEFAULT
    if "://" not in place and Path(place).is_file():
        raise InputError(
            f"{place}: is a file; wanted a folder, or a bucket as s3://bucket/prefix; give another --store"
        )
    return Store.open(place)


def existing(store: str | None) -> Store:
    """The store that a command reads: one that was named must be there."""
    from cbe.store.folder import DEFAULT, STUDY_FILE

    place = opened(store)
    if store and place.location.local and not Path(place.uri).is_dir():
        raise InputError(f"store {store}: there is no such folder; check --store and CBE_STORE")
    if place.location.local and (Path(place.uri) / STUDY_FILE).is_file():
        raise InputError(
            f"store {store or DEFAULT}: is the folder of one study; wanted the one above it; "
            f"give --store {shlex.quote(str(Path(store or DEFAULT).parent))}"
        )
    return place
