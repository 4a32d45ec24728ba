"""Trials that are trained and recorded as a study does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml

from cbe.data import Dataset
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import config_id
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.training.loop import Snapshot, train

ENSEMBLES = {
    "single": {"kind": "single"},
    "temporal": {"kind": "temporal"},
    "multihead": {"kind": "multihead", "heads": 3},
    "channel": {"kind": "channel", "heads": 3},
    "model": {"kind": "model", "heads": 2},
}
TRAINING = {"steps": 20, "eval_every": 10, "eval_batch": 64, "lr": 0.1}  # validation in two uneven batches


def study_at(store: Path, config: TrainConfig) -> StudyFolder:
    """An empty study whose trials are of this config."""
    folder = Store.open(str(store)).study("first")
    plain = {"name": "first", **config.to_plain(), "ensemble": {"kind": "channel"}}
    study = StudyConfig.model_validate({key: plain[key] for key in ("name", "data", "model", "training")})
    folder.write(STUDY_FILE, yaml.safe_dump(study.to_plain()).encode())
    return folder


def add(folder: StudyFolder, trial: str, config: TrainConfig, data: Dataset, **known: Any) -> None:
    """Trains one trial and records it as a study does: checkpoint, curve and row."""
    config = resolve(config)
    last: dict[str, Any] = {}

    def report(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        local = Path(folder.path(f"checkpoints/{trial}/{snapshot.step:09d}.pt"))
        snapshot.save(local)
        row = {name: metrics[name] for name in ("step", "validation_error", "test_error") if name in metrics}
        folder.append("metrics", [{"trial": trial, **row}])
        last.update(row, checkpoint=f"checkpoints/{trial}/{local.name}")

    train(config, data, report)
    row = {
        **{"trial": trial, "role": "search", "state": "completed", "params": "{}", "device": "cpu"},
        **{"config_id": config_id(config), "config": json.dumps(config.to_plain())},
        **{"seed": 0, "label_split": config.data.label_split, "split": data.split.digest},
        **{"objective": last["validation_error"], "values": [last["validation_error"]]},
        **{"step": last["step"], "checkpoint": last["checkpoint"]},
        **{"versions": json.dumps({"torch": torch.__version__}), "git_commit": "abc"},
    }
    folder.append("trials", [row | known])
