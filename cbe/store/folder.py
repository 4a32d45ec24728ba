"""A store of studies, and the folder of one of them.

    STORE/_index/*.parquet
    STORE/<study>/study.yaml  data.json  status.json  claims/…  learned.json  optuna.journal
                  checkpoints/…  logs/…
                  trials/*.parquet  metrics/*.parquet  confusions/*.parquet  events/*.parquet

STORE is a local path or an address in a bucket, as s3://bucket/prefix. A reader sees whole files only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbe.errors import CbeError, InputError
from cbe.spec import StudyConfig
from cbe.spec.files import read_config_text
from cbe.spec.terms import is_name
from cbe.store import compact as merging
from cbe.store import epochs, reader
from cbe.store.clock import tick
from cbe.store.index import FOLDER, NOTHING, Index, Known
from cbe.store.location import Location
from cbe.store.schema import TABLES, build
from cbe.store.states import STATUS, current_trials

DEFAULT = "results"  # the store where none is named
STUDY_FILE = "study.yaml"
SUBMISSION = "submission.json"  # what somebody wants of it, for a service
DATA_FILE = "data.json"  # what the driver found in the data, as `cbe.data.Facts` tells it

_WATCHED = (STUDY_FILE, STATUS, SUBMISSION, "stop")
_ASIDE = re.compile(r"\..+\.\d+")  # what cbe.files calls a file in the making
_DAY_S = 24 * 3600.0
_AT_ONCE = 16  # studies read

Names = list[str]


@dataclass(frozen=True)
class Store:
    location: Location

    @classmethod
    def open(cls, uri: str) -> Store:
        """A store at a local path or in a bucket, as s3://bucket/prefix; nothing is made there."""
        return cls(Location.open(str(uri)))

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def index(self) -> Index:
        return Index(self.location.at(FOLDER))

    def names(self) -> Names:
        """The studies that are there."""
        if self.location.local:  # where a look costs no more than the index
            return self._there(self._folders())
        return list(self.known())

    def known(self) -> dict[str, Known]:
        """The studies that are there, with what the index has of them.

        A study is a folder with a study file, whatever the index says: its rows spare only a closer look.
        """
        with ThreadPoolExecutor(1) as beside:
            indexed = beside.submit(self._indexed)
            folders = self._folders()
            rows = indexed.result()
        found = {name: rows.get(name, NOTHING) for name in folders}
        unsure = [name for name, row in found.items() if self.location.local or not row.at_rest]
        gone = set(unsure) - set(self._there(unsure))
        return {name: row for name, row in found.items() if name not in gone}

    def _indexed(self) -> Mapping[str, Known]:
        try:
            return self.index.all()
        except CbeError:  # then there is none; where the store itself is away, its folders tell
            return {}

    def _folders(self) -> Names:
        return [entry.name for entry in self.location.entries() if entry.is_folder and is_name(entry.name)]

    def _there(self, names: Sequence[str]) -> Names:
        absent = set(self.location.missing([f"{name}/{STUDY_FILE}" for name in names]))
        return [name for name in names if f"{name}/{STUDY_FILE}" not in absent]

    def study(self, name: str) -> StudyFolder:
        """The folder of a study, which need not be there yet."""
        if not is_name(name):
            above, _, trial = name.partition("/")
            if is_name(above) and re.fullmatch(r"[ct]\d{4,}", trial):
                raise InputError(f"{name}: is a trial; wanted a study alone, as {above}; take off /{trial}")
            raise InputError(
                f"study {name!r}: wanted a name of at most 64 small letters, digits and . _ -, that begins "
                "with a letter or digit and has no two dots in a row; choose another name"
            )
        return StudyFolder(name, self.location.at(name))

    def table(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        studies: Sequence[str] | None = None,
    ) -> pa.Table:
        """The rows of some studies, of all where none are named; trials are in the state they have now."""

        def rows(folder: StudyFolder) -> pa.Table:
            if table == "trials":
                return current_trials(folder, columns, where)
            return folder.table(table, columns, where)

        folders = [self.study(name) for name in (self.names() if studies is None else studies)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            parts = list(pool.map(rows, folders))
        empty = TABLES[table].fields(columns or TABLES[table].schema.names).empty_table()
        return pa.concat_tables([empty, *parts])


@dataclass(frozen=True)
class StudyFolder:
    name: str
    location: Location

    @property
    def uri(self) -> str:
        return self.location.uri

    def exists(self) -> bool:
        return not self.location.missing([STUDY_FILE])

    def config(self) -> StudyConfig | None:
        """The study as its file has it; None where there is none."""
        content = self.read(STUDY_FILE)
        return None if content is None else _config(content, self.path(STUDY_FILE))

    def path(self, relative: str) -> str:
        """The address of something in the folder: a local path, or s3://…, gs://…, abfs://…"""
        return self.location.at(relative).uri

    def read(self, relative: str) -> bytes | None:
        """A file's content; None where there is no such file."""
        return self.location.at(relative).read()

    def write(self, relative: str, content: bytes) -> None:
        """Puts a file there whole, or not at all."""
        self.location.at(relative).write(content)

    def create(self, relative: str, content: bytes) -> bool:
        """Puts a whole file there where there is none; False where there is one."""
        return self.location.at(relative).create(content)

    def delete(self, relative: str) -> None:
        """Removes a file, or a folder with all it holds; what is not there is gone already."""
        self.location.at(relative).delete()

    def remove(self) -> None:
        """Deletes all that there is of the study; its file last, so that what is left can still be named."""
        with self.changing():
            for entry in self.location.entries():
                if entry.name != STUDY_FILE:
                    self.delete(entry.name)
            self.delete(STUDY_FILE)
            self.location.delete()

    def changing(self) -> AbstractContextManager[None]:
        """Within it, and until the study rests again, the store's index does not say how it stands."""
        above = self.location.root.rpartition("/")[0]
        return Store(replace(self.location, root=above)).index.changing(self.name)

    def append(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Adds rows to a table as one new file; study and revision are filled in where a row has none.

        A study's driver adds by an `EpochWriter`, which others cannot get in the way of.
        """
        if rows:
            self.location.at(f"{table}/{merging.new_name()}").write(self.encoded(table, rows))

    def encoded(self, table: str, rows: Sequence[dict[str, Any]], **known: Any) -> bytes:
        """A file of these rows; what is known of all of them is filled in where a row has none."""
        kind = TABLES[table]
        given: dict[str, Any] = {"study": self.name, **known}
        if "revision" in kind.schema.names:
            given["revision"] = tick()
        return kind.encode(build(kind, [given | row for row in rows]))

    def table(
        self, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """The latest revision of every row, in no particular order.

        `where` is an expression as `pc.field("state") == "running"`, and may name columns not asked for.
        """
        return reader.read(self.location.at(table), TABLES[table], columns, where)

    def stamp(self) -> tuple[object, ...]:
        """What changes whenever the study's file, its trials or its driver's words do."""
        if self.location.local:
            return tuple(_modified(self.path(name)) for name in (*_WATCHED, "trials"))
        found = {entry.name: entry for entry in self.location.entries(folders=False)}
        return (*(found.get(name) for name in _WATCHED), *self.list("trials"))

    def compact(self, table: str, grace_s: float = merging.GRACE_S, least: int = 2) -> int:
        """Merges a table's files where they are `least` or more, and says how many make it up now.

        What the merged file replaces is deleted by a later call, `grace_s` after it or more.
        """
        kept = epochs.kept(self, self.list(table))
        return merging.compact(self.location.at(table), TABLES[table], grace_s, least=least, kept=kept)

    def finish(self) -> None:
        """Leaves one file of each table; for a study that nobody writes to any more."""
        for name, table in TABLES.items():
            merging.finish(self.location.at(name), table, epochs.kept(self, self.list(name)))

    def sweep(self, older_s: float = _DAY_S) -> None:
        """Deletes what killed writers have left behind; a file in the making is younger than a day."""
        if not self.location.writes_aside:
            return
        for entry in self.location.entries(hidden=True, recursive=True):
            above, _, name = entry.name.rpartition("/")
            ours = _ASIDE.fullmatch(name) and not re.search(r"(^|/)\.", above) and not entry.is_folder
            if ours and entry.modified_s < time.time() - older_s:
                self.location.at(entry.name).delete()

    def list(self, relative: str) -> Names:
        """The names of the files and folders directly in a folder of the study."""
        return [entry.name for entry in self.location.at(relative).entries()]


@lru_cache(maxsize=1024)
def _config(content: bytes, where: str) -> StudyConfig:
    """Once for every content: files are read again and again while studies are watched."""
    try:
        return read_config_text(StudyConfig, content.decode(), name=where, is_stored=True)
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: cannot be read as text ({error}); put the file back as it was") from None


def _modified(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None
