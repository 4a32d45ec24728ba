"""The study `heads` as it stands in a store once it has finished."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from cbe.spec import StudyConfig, TrainConfig, read_config
from cbe.store.folder import Store, StudyFolder
from cbe.store.states import STATUS
from cbe.study.lifecycle import begin

PLAIN: dict[str, Any] = {
    "name": "heads",
    "question": "Do [bold]more[/bold] heads help?",
    "data": {"labels": 40, "validation": 200},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
    "training": {
        **{"steps": 40, "eval_every": 20, "batch_size": 8, "unlabeled_ratio": 2},
        **{"lr": 0.06, "ema": 0.9},
    },
    "scheduler": {"name": "asha", "grace": 20, "reduction": 2},
    "search": {"ensemble.heads": {"int": [2, 8]}, "loss.weights.lb": {"float": [0.1, 10], "log": True}},
    "budget": {"trials": 4},
    "confirm": {"configs": 1, "runs": 2},
}


def write(path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(PLAIN | changes))
    return path


def config(**changes: Any) -> StudyConfig:
    return StudyConfig.model_validate(PLAIN | changes)


def row(trial: str, error: float | None, **columns: Any) -> dict[str, Any]:
    """A trial that was trained to its end, or is whatever `columns` say."""
    own: dict[str, Any] = {
        "trial": trial,
        "role": "confirm" if trial.startswith("c") else "search",
        "state": "completed",
        "config_id": "aaaaaaaaaaaa",
        "params": '{"loss.weights.lb": 0.25, "ensemble.heads": 4}',
        "config": json.dumps(read_config(TrainConfig, settings=["ensemble.heads=4"]).to_plain()),
        "seed": 0,
        "label_split": 0,
        "objective": error,
        "last_test_error": None if error is None else error + 0.01,
        "step": 40,
        "steps": 40,
        "wall_s": 12.0,
        "updated": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    }
    return own | columns


def base(trial: str, error: float, **columns: Any) -> dict[str, Any]:
    return row(trial, error, preset="base", config_id="bbbbbbbbbbbb", params="{}", **columns)


ROWS = [
    base("t0000", 0.5),
    row("t0001", 0.25),
    row("t0002", 0.8, state="pruned", step=20, config_id="cccccccccccc", params='{"ensemble.heads": 2}'),
    row(
        "t0003",
        None,
        state="failed",
        step=20,
        config_id="dddddddddddd",
        params='{"ensemble.heads": 8}',
        error_class="NonFiniteLoss",
        error_text="loss [red]is[/red] not finite\x1b[2J\nat step 20",
    ),
    *(base(f"c000{n}", 0.5 + 0.01 * n, seed=1 + n, label_split=1 + n) for n in range(2)),
    *(row(f"c000{2 + n}", 0.3 + 0.02 * n, seed=1 + n, label_split=1 + n) for n in range(2)),
]


def finished_study(place: Path) -> StudyFolder:
    """A study that has finished, in a store of its own."""
    store = Store.open(str(place))
    begin(config(), store)
    made = store.study("heads")
    made.append("trials", ROWS)
    made.write(STATUS, json.dumps({"state": "finished", "stage": "finished", "confirmations": 4}).encode())
    return made
