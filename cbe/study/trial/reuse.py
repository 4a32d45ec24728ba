"""Runs that the store already holds, so that a study need not train them again.

A run is the same if all that decides its figures is: config, seed, label split, steps, images, number of
workers, kind of device, versions of the packages and commit of the code. Whether that is a search or a
confirmation does not change what it computes.

It may change what a confirmation proves. A config that was chosen by its result on a pair looks better on
that pair than it is, whether the run is made again or taken over. So a confirmation takes over a run only

- of a study whose search has not run on that pair: what is confirmed was not chosen on it there, and
- in a study that no other one guides (`search_from`): what is confirmed was not suggested by that run.

The study file fixes the pairs of a confirmation before any of its runs is known.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbe.errors import ConfigError, InputError
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import config_id
from cbe.spec.metrics import REPORTED, SUMMARIES, SUMMARIZED
from cbe.spec.search import applicable, values_of
from cbe.spec.terms import Pair, Role
from cbe.ssl import resolve
from cbe.store.folder import DATA_FILE, Store, StudyFolder
from cbe.store.rows import Row, pair_of
from cbe.study.trial.provenance import provenance

Key = tuple[str, int, int]  # config, seed, label split

_AT_ONCE = 8  # studies read
_COPIED = (
    *("step", "best_step", "parameters", "macs", "split", "device", "node"),
    *(f"{which}_{metric}" for which in SUMMARIES for metric in SUMMARIZED),
)
_ABOUT = ("trial", "role", "seed", "label_split", "config_id", "config", "steps", "wall_s")
_MATRICES = {"validation": "confusion", "pseudo": "pseudo_confusion"}


@dataclass(frozen=True)
class Run:
    """A completed trial of the store."""

    study: str
    row: Row
    metrics: pa.Table  # of its study
    matrices: pa.Table
    searched: Collection[Pair]  # pairs that its study's search has run on

    @property
    def name(self) -> str:
        """STUDY/TRIAL."""
        return f"{self.study}/{self.row['trial']}"

    @property
    def figures(self) -> dict[str, Any]:
        """The columns of its row that hold for a study that reuses it, too."""
        return {key: self.row[key] for key in _COPIED}

    @property
    def reports(self) -> list[dict[str, Any]]:
        """Its evaluations in the order of steps, the last with its confusion matrices."""
        mine = pc.field("trial") == self.row["trial"]
        found: list[dict[str, Any]] = self.metrics.filter(mine).sort_by("step").to_pylist()
        for each in self.matrices.filter(mine).to_pylist():
            if found and each["step"] == found[-1]["step"]:
                found[-1][_MATRICES[each["kind"]]] = each["matrix"]
        return found

    def values(self, study: StudyConfig, reports: Sequence[Row]) -> list[float] | None:
        """The objectives of a study; None where one was not measured, or the curve does not reach the end."""
        if not reports or reports[-1]["step"] != self.row["steps"]:
            return None
        measured = {**self.row, **reports[-1]}
        found = [measured.get(each.metric) for each in study.objectives]
        values = [float(value) for value in found if value is not None and isfinite(value)]
        return values if len(values) == len(found) else None


@dataclass(frozen=True)
class ReusableRuns:
    """The runs that a study may take over; read once, when the study starts."""

    runs: Mapping[Key, Sequence[Run]] = field(default_factory=dict)
    guided: bool = False  # by earlier studies

    def find(self, role: Role, config: str, pair: Pair) -> Run | None:
        """A run of this config on this pair; None where it must be trained."""
        found = self.runs.get((config, *pair), ())
        if role == "confirm":
            found = [] if self.guided else [run for run in found if pair not in run.searched]
        return next(iter(found), None)


def reusable_runs(study: StudyConfig, store: Store, data: str, device: str | None) -> ReusableRuns:
    """All runs of the store that the study could make itself, on these images and this kind of device."""
    other_data = any(key.startswith("data.") for key in study.search)
    population = study.scheduler.name == "pbt"  # whose trials change their configs as they train
    if not study.storage.reuse or device is None or other_data or population:
        return ReusableRuns()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        folders = [store.study(name) for name in store.names()]
        parts = pool.map(lambda folder: list(_runs(study, folder, data, device)), folders)
    runs: dict[Key, list[Run]] = {}
    for run in (run for part in parts for run in part):
        row = run.row
        runs.setdefault((row["config_id"], *pair_of(row)), []).append(run)
    return ReusableRuns(runs, bool(study.search_from))


def _runs(study: StudyConfig, folder: StudyFolder, data: str, device: str) -> Iterator[Run]:
    try:
        if json.loads(folder.read(DATA_FILE) or b"{}").get("digest") != data:
            return
        rows = folder.table("trials", [*_ABOUT, *_COPIED], _is_alike(study, device)).to_pylist()
        fixed = {config_id(resolve(made(0, 0))) for made in (study.paper_config, study.base_config)}
        pairs = {*study.pairs, *study.confirm_pairs}
        rows = [row for row in rows if pair_of(row) in pairs]
        rows = [row for row in rows if row["config_id"] in fixed or _is_searched(study, row)]
        if not rows:
            return
        changed = folder.table("events", ["trial"], pc.field("kind") == "exploited")["trial"].to_pylist()
        rows = [row for row in rows if row["trial"] not in changed]
        names = pc.field("trial").isin([row["trial"] for row in rows])
        reports = ["trial", "step", *REPORTED, "thresholds", "wall_s"]
        metrics = folder.table("metrics", reports, names)
        last = pc.field("step").isin(list({row["steps"] for row in rows}))
        matrices = folder.table("confusions", ["trial", "step", "kind", "matrix"], names & last)
        search = folder.table("trials", ["seed", "label_split"], pc.field("role") == "search").to_pylist()
    except (InputError, ValueError):  # a study that cannot be read has nothing to give
        return
    searched = {pair_of(row) for row in search}
    for row in sorted(rows, key=lambda row: row["trial"]):
        yield Run(folder.name, row, metrics, matrices, searched)


def _is_alike(study: StudyConfig, device: str) -> pc.Expression:
    """Completed by the same code, on the same kind of device, and not taken over from elsewhere."""
    wanted = {
        **{"state": "completed", "device": device, "workers": study.resources.workers, "reused_from": None},
        **{"training_device": study.training.device, "training_compile": study.training.compile},
        **provenance(),
    }
    alike = pc.scalar(True)
    for name, value in wanted.items():
        alike = alike & (pc.field(name).is_null() if value is None else pc.field(name) == value)
    return alike


def _is_searched(study: StudyConfig, row: Row) -> bool:
    """Whether the config is a point of the study's search."""
    values = values_of(TrainConfig.model_validate_json(row["config"]))
    point = {key: values[key] for key, p in study.search.items() if applicable(key, p, values)}
    try:
        return bool(row["config_id"] == config_id(resolve(study.train_config(point, 0, 0))))
    except ConfigError:
        return False
