"""One table of a study out of its many files, while others write and merge them.

Files are immutable, and what a merged file replaces stays for a while: who has listed it opens it without
another look. Of rows with the same key the latest revision counts; that also makes rows harmless that are
found twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cbe.errors import RunError
from cbe.store.location import Entry, Location
from cbe.store.schema import Table, replaced

MERGED = ".merged.parquet"

# In a bucket a request takes longer than reading a megabyte that is not needed.
_CACHE = pa.CacheOptions(hole_size_limit=2**20, range_size_limit=2**26)
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(cache_options=_CACHE)
)
_TRIES = 10
_AT_ONCE = 16  # footers; in a bucket each is a round trip


class Gone(Exception):
    """A listed file was deleted before it was read; a new listing names the one that replaces it."""


@dataclass(frozen=True)
class TableFile:
    """One file of a table, its footer read."""

    entry: Entry
    fragment: ds.ParquetFileFragment

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def schema(self) -> pa.Schema:
        return self.fragment.physical_schema

    @property
    def rows(self) -> int:
        return int(self.fragment.metadata.num_rows)

    @property
    def bytes(self) -> int:
        """What its rows take uncompressed."""
        footer = self.fragment.metadata
        return sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))

    def ends(self, column: str) -> Iterator[tuple[Any, int]]:
        """The largest value of each group of rows, where it is known, and how many rows that are."""
        footer = self.fragment.metadata
        at = [footer.schema.column(number).path for number in range(footer.num_columns)].index(column)
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            found = group.column(at).statistics
            if found is not None and found.has_min_max:
                yield found.max, group.num_rows


@dataclass(frozen=True)
class Listing:
    """The files that make up a table, merged ones, and those beside them that a merged file stands for."""

    place: Location
    live: tuple[TableFile, ...]
    merged: tuple[TableFile, ...]
    replaced: tuple[Entry, ...]

    def rows(
        self, parts: Sequence[TableFile], schema: pa.Schema, where: pc.Expression | None = None
    ) -> pa.Table:
        """The rows of some files one after another; columns that a file does not have are null."""
        fragments = [part.fragment for part in parts]
        dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, self.place.filesystem)
        with _watching(self.place, [part.name for part in parts]):
            return dataset.to_table(columns=schema.names, filter=where)


def read(
    place: Location, table: Table, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """The rows that count and for which `where` holds, in no particular order."""
    wanted = table.fields(table.schema.names if columns is None else list(columns))
    asked = mentioned(where, table)
    schema = table.fields(list(dict.fromkeys([*wanted.names, *asked])))
    # A row that does not hold now may have held in an older revision: only what never changes can be asked
    # before. Then only those groups of rows are read that may have it.
    early = where if where is not None and set(asked) <= table.fixed else None
    for _ in range(_TRIES):
        try:
            found = _latest(scan(place, table), table, schema, early)
        except Gone:
            continue
        if where is not None and early is None:
            found = found.filter(where)
        return found.select(wanted.names)
    raise RunError(f"{place.uri}: files went away {_TRIES} times while they were read; try again")


def scan(place: Location, table: Table, *, superseded: bool = False) -> Listing:
    """Lists a table's files and reads the footers of those that count, and of superseded merges if wanted."""
    entries = _listed(place)
    merged: list[TableFile] = []
    dead: set[str] = set()
    for entry in reversed(entries):  # the latest merge names what came before: mostly it alone is read
        if entry.name.endswith(MERGED) and (superseded or entry.name not in dead):
            merged += _open(place, table, [entry])
            dead.update(replaced(merged[-1].schema))
    plain = [entry for entry in entries if entry.name not in dead and not entry.name.endswith(MERGED)]
    live = [*(part for part in merged if part.name not in dead), *_open(place, table, plain)]
    gone = [entry for entry in entries if entry.name in dead]
    return Listing(place, tuple(live), tuple(merged), tuple(gone))


def _listed(place: Location) -> list[Entry]:
    """What is in the folder at one moment.

    A folder on a disk changes while it is read: a file that was replaced then may be gone already, and the
    one that replaces it not be seen yet. Two looks that agree have missed none. A bucket lists a moment.
    """
    before: list[Entry] | None = None
    for _ in range(_TRIES):
        found = [entry for entry in place.entries(folders=False) if entry.name.endswith(".parquet")]
        if place.cloud is not None or found == before:
            return found
        before = found
    return found


def resolve(rows: pa.Table, table: Table) -> pa.Table:
    """Of rows with the same key, the one of the latest revision."""
    number = pa.array(np.arange(len(rows)))
    slim = rows.select(list(table.key)).append_column("row", number)
    if "revision" in rows.column_names:
        slim = slim.take(pc.sort_indices(rows["revision"]))
    last = slim.group_by(list(table.key), use_threads=False).aggregate([("row", "last")])["row_last"]
    if len(last) == len(rows):
        return rows
    keep = np.zeros(len(rows), dtype=bool)
    keep[last.to_numpy()] = True
    return rows.filter(pa.array(keep))


def _latest(listing: Listing, table: Table, schema: pa.Schema, where: pc.Expression | None) -> pa.Table:
    # A merged file has each key once. Of the largest only those rows can be outdated whose key begins as one
    # of the other files' does; the many others need no comparing.
    merged = [part for part in listing.live if part.name.endswith(MERGED)]
    base = max(merged, key=lambda part: part.entry.size, default=None)
    rest = [part for part in listing.live if part is not base]
    if base is not None and not rest:
        return listing.rows([base], schema, where)
    schema = table.fields(list(dict.fromkeys([*schema.names, *_order(table)])))
    rows = listing.rows(rest, schema, where)
    if base is None:
        return resolve(rows, table)
    settled = listing.rows([base], schema, where)
    if not len(rows):
        return settled
    first = table.key[0]
    touched = pc.is_in(settled[first], value_set=pc.unique(rows[first]))
    if not pc.any(touched).as_py():
        return pa.concat_tables([settled, resolve(rows, table)])
    open_rows = resolve(pa.concat_tables([settled.filter(touched), rows]), table)
    return pa.concat_tables([settled.filter(pc.invert(touched)), open_rows])


def _open(place: Location, table: Table, entries: Sequence[Entry]) -> list[TableFile]:
    def part(entry: Entry) -> TableFile:
        path = f"{place.root}/{entry.name}"
        fragment = _FORMAT.make_fragment(path, filesystem=place.filesystem, file_size=entry.size)
        with _watching(place, [entry.name]):
            fragment.ensure_complete_metadata()
        table.check(place.at(entry.name).uri, fragment.physical_schema)
        return TableFile(entry, fragment)

    if len(entries) < 2:
        return list(map(part, entries))
    with ThreadPoolExecutor(min(_AT_ONCE, len(entries))) as pool:
        return list(pool.map(part, entries))


@contextmanager
def _watching(place: Location, names: list[str]) -> Iterator[None]:
    """Tells a file that has gone away from one that cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if place.missing(names):
            raise Gone from error
        raise place.unreadable(error) from error


def _order(table: Table) -> list[str]:
    return [*table.key, *(["revision"] if "revision" in table.schema.names else [])]


def mentioned(where: pc.Expression | None, table: Table) -> list[str]:
    """The columns an expression may ask for; words in its values can make it a few more, never fewer."""
    if where is None:
        return []
    words = set(re.findall(r"\w+", str(where)))
    return [name for name in table.schema.names if name in words]
