"""What trials had reported before a driver began, read from the store once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbe.spec.metrics import SUMMARIZED, WHILE_TRAINING
from cbe.store.folder import StudyFolder

COLUMNS = tuple(dict.fromkeys(("trial", "step", "revision", *SUMMARIZED, *WHILE_TRAINING)))


class PastReports:
    """The reports of all trials so far, by trial and step."""

    def __init__(self, reports: pa.Table) -> None:
        """`reports` are rows of `metrics`, with the columns above."""
        by_trial = [("trial", "ascending"), ("step", "ascending")]
        self._reports = reports.sort_by(by_trial).combine_chunks()
        names = self._reports["trial"].to_numpy()
        first = np.append([True], names[1:] != names[:-1])[: len(names)]
        starts = np.flatnonzero(first).tolist()
        self._rows = {names[a]: (a, b) for a, b in pairwise([*starts, len(names)])}

    @classmethod
    def read(cls, folder: StudyFolder) -> PastReports:
        return cls(folder.table("metrics", COLUMNS))

    def __iter__(self) -> Iterator[str]:
        """The trials that have reported."""
        return iter(self._rows)

    @property
    def revision(self) -> int:
        """The latest; 0 where there is none."""
        return int(pc.max(self._reports["revision"]).as_py() or 0)

    def last_steps(self) -> dict[str, int]:
        steps = self._reports["step"].to_pylist()
        return {trial: steps[end - 1] for trial, (_, end) in self._rows.items()}

    def curve(self, trial: str, metric: str) -> dict[int, float]:
        """A metric by step, where it was reported."""
        found = self._of(trial, ("step", metric))
        steps, values = found["step"].to_pylist(), found[metric].to_pylist()
        return {step: value for step, value in zip(steps, values, strict=True) if value is not None}

    def evaluations(self, trial: str, *others: str) -> list[dict[str, Any]]:
        """What is summarized of a trial, and other metrics, in the order of steps."""
        rows: list[dict[str, Any]] = self._of(trial, ("step", *SUMMARIZED, *others)).to_pylist()
        return rows

    def _of(self, trial: str, columns: Iterable[str]) -> pa.Table:
        start, end = self._rows.get(trial, (0, 0))
        return self._reports.select(list(dict.fromkeys(columns))).slice(start, end - start)
