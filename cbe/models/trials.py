"""Which trial's model leaves a study, and what its checkpoint holds."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch
from pydantic import ValidationError

from cbe.data import Dataset, open_dataset
from cbe.errors import CheckpointError, DataError, InputError
from cbe.models.network import Weights
from cbe.report.best import best
from cbe.report.lookup import known, store_of, trial_row
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.metrics import METRICS, on_test
from cbe.store.folder import StudyFolder
from cbe.store.rows import Row
from cbe.store.states import TRAINED
from cbe.training import checkpoint

_COLUMNS = (
    *("trial", "state", "config_id", "objective", "split", "checkpoint", "device"),
    *("versions", "git_commit", "error_class", "reused_from"),
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, eq=False)
class Trained:
    """A trial's last checkpoint, and what was recorded of it."""

    row: Row
    config: TrainConfig  # as the checkpoint has it: resolved, with the precision that was used
    split: str
    step: int
    weights: Weights  # of the running mean
    validation_error: float


def find(folder: StudyFolder, study: StudyConfig, trial: str | None) -> Row:
    """The row of a trial; without a name, of the best run of the best config."""
    name = trial if trial is not None else _best(folder, study)
    row = trial_row(folder, name, _COLUMNS)
    if not _NAME.fullmatch(name):  # it names a folder, and the store may be anybody's
        raise InputError(f"trial {name!r}: wanted letters, digits and . _ - only; export another trial")
    if row["state"] not in TRAINED:
        error = f" ({row['error_class']})" if row["error_class"] else ""
        raise InputError(
            f"trial {name}: is {row['state']}{error}; wanted one that is {' or '.join(TRAINED)}; "
            f"see `cbe show {folder.name}`, and give another --trial"
        )
    return row


def _best(folder: StudyFolder, study: StudyConfig) -> str:
    answer = best(folder, 1, study)
    if on_test(answer.metric):
        raise InputError(
            f"{folder.name}: its configs are ranked by {METRICS[answer.metric].title}, "
            "which chooses no model; "
            "wanted a trial that you chose otherwise; give --trial"
        )
    sign = 1 if answer.direction == "minimize" else -1
    rows = (trial_row(folder, name, _COLUMNS) for name in answer.ranked[0].trials)
    return str(min(rows, key=lambda row: (sign * row["objective"], row["trial"]))["trial"])


def restore(folder: StudyFolder, row: Row) -> Trained:
    """Reads a trial's checkpoint out of the store."""
    name, (holder, where) = row["trial"], _checkpoint(folder, row)
    another = "its model is lost; give another --trial, or train it again"
    if not where:
        raise InputError(f"trial {name}: no checkpoint is recorded; {another}")
    try:
        content = holder.read(where)
    except ValueError as error:
        raise InputError(f"trial {name}: {error}; {another}") from None
    if content is None:
        raise InputError(f"trial {name}: its checkpoint {where} is gone from {holder.uri}; {another}")
    try:
        state = _loaded(content)
        config, run = TrainConfig.model_validate(state["config"]), state["run"]
        split, step = str(state["split"]), int(run["step"])
        weights = {
            str(key): tensor.clone(memory_format=torch.contiguous_format)
            for key, tensor in sorted(run["ema"].items())
        }
    except (CheckpointError, ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = "damaged, or of another version" if isinstance(error, CheckpointError) else error
        raise InputError(
            f"trial {name}: its checkpoint {where} cannot be used ({reason}); {another}"
        ) from error
    return Trained(row, config, split, step, weights, _recorded(folder, name, step))


def _checkpoint(folder: StudyFolder, row: Row) -> tuple[StudyFolder, str | None]:
    """Where a trial's checkpoint is: of a run that was reused, in the study that trained it."""
    if not row["reused_from"]:
        return folder, row["checkpoint"]
    study, _, trial = row["reused_from"].partition("/")
    trained = known(store_of(folder), study)
    return trained, trial_row(trained, trial, ["checkpoint"])["checkpoint"]


def _loaded(content: bytes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / "checkpoint.pt"
        path.write_bytes(content)
        return checkpoint.load(path)


def _recorded(folder: StudyFolder, trial: str, step: int) -> float:
    """The validation error that was recorded at a step."""
    here = (pc.field("trial") == trial) & (pc.field("step") == step)
    found = folder.table("metrics", ["validation_error"], here)["validation_error"].to_pylist()
    if not found or found[0] is None:
        raise InputError(
            f"trial {trial}: no validation error is recorded at step {step}, that of its checkpoint; "
            f"go on with `cbe resume {folder.name}`, or give another --trial"
        )
    return float(found[0])


def data_of(trained: Trained, study: StudyConfig) -> Dataset:
    """The images a trial was trained on, from where the study has them now."""
    config = trained.config.data
    if config.source == study.data.source and "data.path" not in study.search:
        config = config.model_copy(update={"path": study.data.path, "root": study.data.root})
    data = open_dataset(config)
    if data.split.digest != trained.split:
        raise DataError(
            f"trial {trained.row['trial']}: was trained on label split {trained.split}, the data now give "
            f"{data.split.digest}: they have changed; bring the old data back"
        )
    return data
