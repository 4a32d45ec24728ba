"""What `cbe.open_store` gives: the results of all studies of a store, for a program or a notebook."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from cbe.errors import InputError
from cbe.report.across import Task, best_of_all
from cbe.report.best import Answer, best
from cbe.report.lookup import known, trial_row
from cbe.store import sql
from cbe.store.folder import STUDY_FILE, Store

Frames = Literal["arrow", "pandas", "polars"]
_TRIAL = re.compile(r"[ct]\d{4,}")


@dataclass(frozen=True)
class Results:
    """Reads a store as it is at the moment of asking, also while studies write to it.

    Tables come as pyarrow's, or as pandas' or polars' frames where the store was opened for them.
    """

    store: Store
    frames: Frames = "arrow"

    def studies(self) -> list[str]:
        """The names of the studies."""
        return self.store.names()

    def trials(
        self,
        study: str | None = None,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> Any:
        """One row a trial, of one study or of all; `where` as `pc.field("state") == "completed"`."""
        return self._frame(self._table("trials", study, columns, where))

    def metrics(self, name: str | None = None, *, study: str | None = None) -> Any:
        """One row for each report, in the order of steps.

        `name` is a study, e.g. "quickstart", or a trial, e.g. "quickstart/t0001"; without it, all studies.
        With `study`, `name` is a trial of that study.
        """
        if study is None and name is not None:
            study, _, name = name.partition("/")
            if not name and _TRIAL.fullmatch(study) and not self.store.study(study).exists():
                raise InputError(
                    f"trial {study!r}: of which study? wanted STUDY/TRIAL, e.g. quickstart/{study}"
                )
        trial = name or None
        if trial and study:
            trial_row(known(self.store, study), trial, ["trial"])
        found = self._table("metrics", study, None, pc.field("trial") == trial if trial else None)
        return self._frame(found.sort_by([(name, "ascending") for name in ("study", "trial", "step")]))

    def best(self, study: str, k: int = 1, where: str | None = None) -> Answer:
        """The k best configs of a study and how sure that is; `where` is a condition in SQL."""
        return best(self.store.study(study), k, where=where)

    def best_of_all(self, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
        """The k best configs of all studies, for each set of images and labels."""
        return best_of_all(self.store, k, where)

    def sql(self, query: str, study: str | None = None, timeout_s: float | None = None) -> Any:
        """The answer to one SELECT over trials, metrics, confusions and events."""
        studies = None if study is None else [known(self.store, study).name]
        return self._frame(sql.select(self.store, query, studies, timeout_s))

    def _table(
        self,
        table: str,
        study: str | None,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        studies = None if study is None else [known(self.store, study).name]
        return self.store.table(table, columns, where, studies)

    def _frame(self, table: pa.Table) -> Any:
        if self.frames == "pandas":
            return table.to_pandas()
        if self.frames == "polars":
            import polars

            return polars.from_arrow(table)
        return table


def open_store(uri: str | PathLike[str] = "results", frames: Frames = "arrow") -> Results:
    """The results of a store: a folder that holds studies, or a bucket, e.g. s3://bucket/prefix.

    `frames` says what tables come as: "arrow", "pandas" or "polars".

    >>> open_store("nowhere")
    Traceback (most recent call last):
      ...
    cbe.errors.InputError: store nowhere: there is no such folder; wanted ...
    """
    require_frames(frames)
    store = Store.open(str(uri))
    if store.location.local:
        _require_store(Path(store.uri), uri)
    return Results(store, frames)


def require_frames(frames: str) -> None:
    """Refuses a kind of table that there is not, or whose library is not installed."""
    wanted = ("arrow", "pandas", "polars")
    if frames not in wanted:
        raise InputError(f"frames {frames!r}: wanted {', '.join(wanted)}")
    if frames != "arrow" and find_spec(frames) is None:
        raise InputError(f"frames {frames!r}: {frames} is not installed; `pip install {frames}`")


def _require_store(folder: Path, given: str | PathLike[str]) -> None:
    """Refuses a path where no store can be."""
    wanted = "wanted the folder that holds your studies, or a bucket as s3://bucket/prefix"
    if folder.is_file():
        raise InputError(f"store {given}: is a file; {wanted}; check the path")
    if not folder.is_dir():
        raise InputError(
            f"store {given}: there is no such folder; {wanted}; check the path, or run a study first"
        )
    if (folder / STUDY_FILE).is_file():
        raise InputError(f"store {given}: is the folder of one study; {wanted}; give {folder.parent}")
