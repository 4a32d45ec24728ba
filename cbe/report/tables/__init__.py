"""The paper's tables from the store, its own figures beside ours.

Nothing here chooses anything: what is called tuned was chosen by `cbe.report.best`, on validation labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cbe.errors import InputError
from cbe.report.lookup import read_study
from cbe.report.tables import kinds
from cbe.report.tables.render import PaperTable, latex, markdown
from cbe.report.tables.runs import Error, Runs
from cbe.spec import StudyConfig
from cbe.store.folder import StudyFolder

__all__ = ["Error", "Kind", "Table", "latex", "markdown", "table"]

Kind = Literal["comparisons", "ablation", "time", "cost"]

_ONE = {"ablation": kinds.ablation, "time": kinds.time, "cost": kinds.cost}


def table(folders: Sequence[StudyFolder], kind: Kind | None = None, error: Error = "last") -> PaperTable:
    """A table of one study, or for comparisons of several; its kind follows from what they search."""
    if not folders:
        raise InputError("no study is given; wanted the names of one or more")
    folders = list({folder.uri: folder for folder in folders}.values())
    studies = [read_study(folder) for folder in folders]
    found = {kind or searched(study) or "comparisons" for study in studies}
    if len(found) > 1 or (len(studies) > 1 and found != {"comparisons"}):
        named = ", ".join(f"{study.name} {kind or searched(study) or 'comparisons'}" for study in studies)
        raise InputError(
            f"{named}: only comparisons put several studies into one table; give one study, or say "
            "--kind comparisons"
        )
    (chosen,) = found
    runs = [
        Runs.read(folder, error, study, whole=searched(study) == chosen)
        for folder, study in zip(folders, studies, strict=True)
    ]
    _check(runs, chosen, given=kind is not None)
    return kinds.comparisons(runs) if chosen == "comparisons" else _ONE[chosen](runs[0])


def searched(study: StudyConfig) -> Kind | None:
    """Which of the paper's tables a study is for, by what it searches."""
    keys = set(study.search)
    if keys and keys <= {"method.name", "ensemble.kind"}:
        return "comparisons"
    if keys and keys <= {"loss.weights.lb", "loss.weights.lv"}:
        return "ablation"
    if "training.steps" in keys and keys <= {"method.name", "ensemble.kind", "training.steps"}:
        return "time"
    if keys and keys <= {"ensemble.heads", "ensemble.private_channels"}:
        return "cost"
    return None


def _check(runs: Sequence[Runs], kind: Kind, *, given: bool) -> None:
    """Refuses a table that would say nothing."""
    first = runs[0].study.name
    listed = "; ".join(f"{name} (of {what})" for name, what in kinds.KINDS.items())
    if kind == "ablation" and not runs[0].whole:
        raise InputError(
            f"{first}: searches {', '.join(runs[0].study.search) or 'nothing'}; wanted a search of the two "
            f"losses' weights alone; the kinds are {listed}; choose another --kind"
        )
    if any(each.configs for each in runs):
        return
    names = ", ".join(each.study.name for each in runs)
    if given or runs[0].whole:
        raise InputError(f"{names}: no trial has been trained to its end; go on with `cbe resume {first}`")
    raise InputError(
        f"{names}: searches nothing that one of the paper's tables is of, and has no run of the base, of the "
        f"paper's config or of one it chose; the kinds are {listed}; see `cbe show {first}`"
    )
