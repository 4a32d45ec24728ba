"""Rows of a study's tables, for tests of the store."""

from __future__ import annotations

import pyarrow.compute as pc

from cbe.store.folder import StudyFolder


def steps(folder: StudyFolder, trial: str = "a") -> list[int]:
    return sorted(folder.table("metrics", ["step"], pc.field("trial") == trial)["step"].to_pylist())


def add(folder: StudyFolder, *steps: int, trial: str = "a", **columns: object) -> None:
    folder.append("metrics", [{"trial": trial, "step": step, **columns} for step in steps])
