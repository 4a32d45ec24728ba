"""A study's folder into which a test writes trials."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import yaml

from cbe.report.best import Answer, best
from cbe.spec import StudyConfig
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store, StudyFolder

BASE = {(1, 1): 0.10, (2, 2): 0.12, (3, 3): 0.14}
Runs = dict[tuple[int, int], float]


class Written:
    """A study's folder into which a test writes trials."""

    def __init__(self, store: Path, **sections: Any) -> None:
        self.study = StudyConfig.model_validate({"name": "first", **sections})
        self.folder: StudyFolder = Store.open(str(store)).study("first")
        self.folder.write(STUDY_FILE, yaml.safe_dump(self.study.to_plain()).encode())
        self._made = 0

    def add(
        self, config: str, runs: Runs, role: str = "confirm", state: str = "completed", **known: Any
    ) -> list[str]:
        """One trial for every (seed, split) and its objective; configs are told apart by their name."""
        names = []
        for (seed, split), value in runs.items():
            names.append(f"{role[0] if role == 'confirm' else 't'}{self._made:04d}")
            self._made += 1
            point = {"ensemble.heads": 3}
            row = {
                "trial": names[-1],
                "role": role,
                "preset": config if config in ("paper", "base") else None,
                "state": state,
                "config_id": config,
                "params": json.dumps(point),
                "config": json.dumps(resolve(self.study.train_config(point, seed, split)).to_plain()),
                "seed": seed,
                "label_split": split,
                "objective": value,
                "values": [value],
            }
            self.folder.append("trials", [row | known])
        return names

    def best(self, k: int = 1) -> Answer:
        return best(self.folder, k)


def moved(runs: Runs, *by: float) -> Runs:
    return {pair: value + each for (pair, value), each in zip(runs.items(), by, strict=True)}


def finished(written: Written, state: str = "finished", **known: Any) -> None:
    written.folder.write("status.json", json.dumps({"state": state, "beat": time.time(), **known}).encode())
