"""Many small files of a table merged into one, so that no reader notices and no crash loses a row.

A merged file names in its metadata the files whose rows it holds. Those are deleted by a later merge, when
the merged one has been there for `grace_s`. Two merges at once make two files with the same rows, which
the next one joins. While a study runs, files of about the same size are merged, so that each row is written
a few times only; at its end all of them, and nothing is left but one file.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cbe.store.clock import tick
from cbe.store.location import Location
from cbe.store.reader import MERGED, Gone, Listing, TableFile, resolve, scan
from cbe.store.schema import Table, replaced

GRACE_S = 60.0

_AT_ONCE = 2**18, 2**26  # rows and bytes held in memory; several times the latter once decoded


def new_name(suffix: str = ".parquet") -> str:
    """A file name that sorts by time and that no other process makes."""
    return f"{tick():020d}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"


def compact(
    place: Location,
    table: Table,
    grace_s: float = GRACE_S,
    *,
    least: int = 2,
    whole: bool = False,
    kept: Collection[str] = frozenset(),
) -> int:
    """Deletes what earlier merges replaced, merges what is worth it, and counts the files of the table.

    What must be `kept` is not deleted. Fewer than `least` files are not merged. With `whole` all of them
    become one, also a single one.
    """
    try:
        listing = scan(place, table, superseded=True)
        _clean(listing, grace_s, kept)
        chosen = list(listing.live) if whole else _choose(listing.live)
        alone = len(chosen) == 1 and (not whole or chosen[0].name.endswith(MERGED))
        if not chosen or alone or len(listing.live) < least:
            return len(listing.live)
        # What older merges replaced and is still there is named again: their files may go before it.
        there = {entry.name for entry in listing.replaced}
        names = [part.name for part in chosen]
        names += [name for part in chosen for name in replaced(part.schema) if name in there]
        _merge(listing, chosen, table, names)
    except Gone:  # another merge is at work, and does what this one would
        return 0
    return len(listing.live) - len(chosen) + 1


def finish(place: Location, table: Table, kept: Collection[str] = frozenset()) -> None:
    """Makes one file of a table that nobody writes to any more, and deletes all others at once.

    Who reads meanwhile may find that a file has gone, and then looks again.
    """
    compact(place, table, least=1, whole=True, kept=kept)
    compact(place, table, grace_s=0.0, kept=kept)


def _clean(listing: Listing, grace_s: float, kept: Collection[str]) -> None:
    old = time.time() - grace_s
    settled = [part for part in listing.merged if not grace_s or part.entry.modified_s <= old]
    names = {name for part in settled for name in replaced(part.schema)}
    for entry in listing.replaced:
        if entry.name in names and entry.name not in kept:
            listing.place.at(entry.name).delete()


def _choose(live: Sequence[TableFile]) -> list[TableFile]:
    """All but files much larger than the smaller ones together: a row is written again as these double."""
    chosen = sorted(live, key=lambda part: part.entry.size)
    total = sum(part.entry.size for part in chosen)
    while chosen and chosen[-1].entry.size > 2 * (total - chosen[-1].entry.size):
        total -= chosen.pop().entry.size
    return chosen


def _merge(listing: Listing, chosen: Sequence[TableFile], table: Table, names: Sequence[str]) -> None:
    """Writes a file on this machine's disk first, for it may be larger than its memory."""
    schema, rows = _with_strangers(table, chosen), sum(part.rows for part in chosen)
    most = min(_AT_ONCE[0], _AT_ONCE[1] * rows // max(1, sum(part.bytes for part in chosen)))
    order = [(name, "ascending") for name in table.order]
    with tempfile.TemporaryDirectory(prefix="cbe-merge-") as aside:
        path = Path(aside) / "merged"
        pieces = (
            resolve(listing.rows(chosen, schema, where), table).sort_by(order)
            for where in _ranges(chosen, table.order[0], most)
        )
        with path.open("wb") as file:
            table.write(file, schema, pieces, rows, names)
        with pa.memory_map(str(path)) as content:
            listing.place.at(new_name(MERGED)).write(content.read_buffer())


def _ranges(parts: Sequence[TableFile], column: str, most: int) -> Iterator[pc.Expression | None]:
    """Conditions that cut a table into pieces of about so many rows at most, in the order of a column."""
    ends, seen, last = sorted(end for part in parts for end in part.ends(column)), 0, None
    value = pc.field(column)
    for end, count in ends:
        seen += count
        if seen >= most and end != last:
            below = value <= end
            yield below | value.is_null() if last is None else below & (value > last)
            last, seen = end, 0
    yield None if last is None else value > last


def _with_strangers(table: Table, parts: Iterable[TableFile]) -> pa.Schema:
    """The table's columns and those that only some file has: a later version of this package wrote them."""
    fields = {field.name: field for part in parts for field in part.schema}
    return pa.schema([*table.schema, *(fields[name] for name in fields if name not in table.schema.names)])
