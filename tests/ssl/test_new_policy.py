"""A threshold policy with a setting of its own takes two files: its method's, and that of the settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
METHOD = """
import torch
from cbe.ssl.method import Method
from cbe.ssl.thresholds import Fixed, Shape


class Patient(Fixed):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.patience = shape.settings.patience


METHOD = Method(policy=Patient)
"""
ENTRY = '    "patient": Entry("cbe.ssl.methods.patient:METHOD", (*_UNLABELED, "method.patience")),\n'
SETTING = "    patience: Annotated[int, Field(ge=1)] = 3  # steps for which a threshold stays\n"
USE = """
from cbe.data import open_dataset
from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig, read_config
from cbe.training.run import Run
from cbe.training.step import train_step
from docs.reference.study_file import generate
from tests.conftest import small

config = small(method={"name": "patient", "patience": 5})
run = Run(config, open_dataset(config.data))
train_step(run)
assert run.policy.patience == 5
study = ["name=a", "method=patient", "search={method.patience: {int: [1, 9]}}"]
assert list(read_config(StudyConfig, settings=study).search) == ["method.patience"]
for given in ("patience=5", "name=patient", "patience=0"):
    try:
        read_config(TrainConfig, settings=[f"method.{given}"])
    except ConfigError as error:
        print(error)
assert "| `method.patience` | Steps for which a threshold stays" in generate()
"""


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before))


def test_a_policy_and_its_setting_are_trained_searched_checked_and_described(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "cbe", tmp_path / "cbe", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "cbe/ssl/methods/patient.py").write_text(METHOD)
    insert(tmp_path / "cbe/spec/methods.py", '    "softmatch": Entry', ENTRY)
    insert(tmp_path / "cbe/spec/methods.py", "    fairness: ", SETTING)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    refused = done.stdout.splitlines()
    assert (
        "method.patience: 5: method fixmatch takes no patience; leave it out, or use method patient"
        in refused
    )
    assert any("method.patience: 0: input should be greater than or equal to 1" in line for line in refused)
    assert len(refused) == 2
