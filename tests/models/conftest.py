"""A study with a trial of every ensemble, and its models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cbe.data import Dataset, open_dataset
from cbe.models.export import export_model
from cbe.store.folder import StudyFolder
from tests.conftest import small
from tests.models.trained import ENSEMBLES, TRAINING, add, study_at


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study with one trial of every ensemble, called by its name."""
    configs = {kind: small(ensemble=given, training=TRAINING) for kind, given in ENSEMBLES.items()}
    folder = study_at(tmp_path_factory.mktemp("store"), configs["single"])
    data = open_dataset(configs["single"].data)
    for trial, config in configs.items():
        add(folder, trial, config, data)
    return folder


@pytest.fixture(scope="session")
def exported(studied: StudyFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel ensemble, in every format; tests may not change it."""
    out = tmp_path_factory.mktemp("models") / "channel"
    return export_model(studied, out, "channel", ("onnx", "torch")).folder


@pytest.fixture
def own(exported: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return Path(shutil.copytree(exported, tmp_path / "own"))


@pytest.fixture(scope="session")
def pixels(digits: Dataset) -> Tensor:
    return torch.tensor(digits.validation.images)
