"""What a store knows of its studies at rest, so that a list of thousands takes a few requests.

    STORE/_index/*.parquet      a table of its own, merged as all tables are; any driver or service adds rows

Before anything of a study changes, a row says that it is open: whoever lists the store then looks at the
study itself. At the end a row says how it rests. A crash in between leaves it open, and who lists the store
notes what is found. So the index is never wrong, only behind; deleting it costs time alone.

Of a study's rows the latest counts, and no clock decides which that is: a row that opens a study comes long
after all that are there, and a note of how it rests just after the one row it was made from. A note of what
was seen before the study was opened again is thus void, however late it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbe.store import compact, reader
from cbe.store.clock import catch_up, tick
from cbe.store.location import Location
from cbe.store.schema import STUDIES, build

FOLDER = "_index"  # no study can have this name

_MOST_FILES = 24  # those that wait to be deleted included
_NOTES = 10**6  # that can follow one row


@dataclass(frozen=True)
class Known:
    """The latest row of a study."""

    revision: int
    state: str | None = None  # None: it is open, and has to be looked at
    stamp: str | None = None  # of its folder, when it was looked at
    overview: str | None = None  # JSON
    submission: str | None = None  # to a service, as its file has it

    @property
    def at_rest(self) -> bool:
        return self.state is not None


NOTHING = Known(0)  # of a study without rows


@dataclass(frozen=True)
class Index:
    location: Location

    def all(self) -> Mapping[str, Known]:
        """What is known, by study; also of some that were deleted since."""
        return self._read(None)

    def of(self, study: str) -> Known:
        """What is known of one study."""
        return self._read(pc.field("study") == study).get(study, NOTHING)

    @contextmanager
    def changing(self, study: str) -> Iterator[None]:
        """Notes that a study may change from now on; raises where that fails, and then it must not.

        And again when the change shows: what somebody has seen before that must not be noted after it.
        """
        catch_up(self.of(study).revision + _NOTES)
        self._open(study)
        try:
            yield
        finally:
            self._open(study)

    def _open(self, study: str) -> None:
        revision = tick()
        catch_up(revision + _NOTES)
        self._add([{"study": study, "revision": revision}])

    def note(self, found: Iterable[tuple[str, Known, Mapping[str, Any]]]) -> None:
        """Notes how studies rest: the row each was known by before it was looked at, and what was seen."""
        self._add([{"study": study, "revision": last.revision + 1, **seen} for study, last, seen in found])

    def _read(self, where: pc.Expression | None) -> dict[str, Known]:
        rows: pa.Table = reader.read(self.location, STUDIES, where=where)
        columns = (rows[name].to_pylist() for name in Known.__dataclass_fields__)
        known = (Known(*values) for values in zip(*columns, strict=True))
        return dict(zip(rows["study"].to_pylist(), known, strict=True))

    def _add(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        content = STUDIES.encode(build(STUDIES, rows))
        self.location.at(compact.new_name()).write(content)
        if len(self.location.entries(folders=False)) > _MOST_FILES:
            compact.compact(self.location, STUDIES)
