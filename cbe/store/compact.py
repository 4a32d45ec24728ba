"""Many small files of a table merged into one, so that no reader notices and no crash loses a row.

A merged file names in its metadata the files whose rows it holds. Those are deleted by a later merge, when
the merged one has been there for `grace_s`. Two merges at once make two files with the same rows, which
the next one joins.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from cbe.store.clock import tick
from cbe.store.location import Location
from cbe.store.reader import MERGED, Gone, Listing, TableFile, resolve, scan
from cbe.store.schema import Table, replaced

GRACE_S = 60.0

_SMALL_BYTES = 2**20
_MOST_BYTES = 2**28  # held in memory, and several times that once decoded


def new_name(suffix: str = ".parquet") -> str:
    """A file name that sorts by time and that no other process makes."""
    return f"{tick():020d}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"


def compact(
    place: Location, table: Table, grace_s: float = GRACE_S, kept: Collection[str] = frozenset()
) -> int:
    """Deletes what earlier merges replaced, but for what must be `kept`, merges what is worth it, and counts
    the files of the table.
    """
    try:
        listing = scan(place, table, superseded=True)
        _clean(listing, grace_s, kept)
        chosen = _choose(listing.live)
        if len(chosen) < 2:
            return len(listing.live)
        rows = resolve(listing.rows(chosen, _with_strangers(table, chosen)), table)
    except Gone:  # another merge is at work, and does what this one would
        return 0
    # What older merges replaced and is still there is named again: their files may be deleted before it.
    there = {entry.name for entry in listing.replaced}
    names = [part.name for part in chosen]
    names += [name for part in chosen for name in replaced(part.schema) if name in there]
    ordered = rows.sort_by([(name, "ascending") for name in table.key])
    place.at(new_name(MERGED)).write(table.encode(ordered, names))
    return len(listing.live) - len(chosen) + 1


def _clean(listing: Listing, grace_s: float, kept: Collection[str]) -> None:
    old = time.time() - grace_s
    settled = [part for part in listing.merged if part.entry.modified_s <= old]
    names = {name for part in settled for name in replaced(part.schema)}
    for entry in listing.replaced:
        if entry.name in names and entry.name not in kept:
            listing.place.at(entry.name).delete()


def _choose(live: Sequence[TableFile]) -> list[TableFile]:
    """All but files much larger than the smaller ones together: so few rows are written again and again."""
    chosen = sorted(live, key=lambda part: part.bytes)
    total = sum(part.bytes for part in chosen)
    while chosen:
        largest = chosen[-1].bytes
        if largest <= _SMALL_BYTES or (largest <= 2 * (total - largest) and total <= _MOST_BYTES):
            break
        total -= largest
        chosen.pop()
    return chosen


def _with_strangers(table: Table, parts: Iterable[TableFile]) -> pa.Schema:
    """The table's columns and those that only some file has: a later version of this package wrote them."""
    fields = {field.name: field for part in parts for field in part.schema}
    return pa.schema([*table.schema, *(fields[name] for name in fields if name not in table.schema.names)])
