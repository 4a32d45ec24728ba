"""The same seed gives the same study, whatever the test labels say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from cbe.report.best import best
from cbe.spec import StudyConfig
from cbe.store.folder import StudyFolder
from tests.study.conftest import curve, rows, run, study

pytestmark = pytest.mark.usefixtures("cluster")


def digits(folder: Path, poisoned: bool) -> str:
    """Digits as Parquet with a test set; poisoned, its labels are of other classes."""
    pixels, labels = load_digits(return_X_y=True)
    folder.mkdir()
    for name, part in (("train", slice(0, 1400)), ("test", slice(1400, None))):
        shift = 3 if poisoned and name == "test" else 0
        images = [{"bytes": png(image)} for image in pixels[part].reshape(-1, 8, 8)]
        table = {"image": images, "label": ((labels[part] + shift) % 10).tolist()}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    return str(folder)


def png(image: Any) -> bytes:
    made = io.BytesIO()
    Image.fromarray((image * 15.9375).astype(np.uint8)).save(made, "PNG")
    return made.getvalue()


def ran(where: Path, poisoned: bool) -> tuple[StudyConfig, StudyFolder]:
    where.mkdir()
    plain = study(
        budget={"trials": 6},
        confirm={"configs": 1, "runs": 2},
        training={"steps": 20},
        scheduler={"name": "asha", "grace": 10, "reduction": 2},
    ).to_plain()
    plain["data"] |= {"source": "parquet", "path": digits(where / "digits", poisoned), "root": str(where)}
    config = StudyConfig.model_validate(plain)
    return config, run(config, where / "store")[1]


def test_poisoned_test_labels_change_neither_suggestions_nor_curves_nor_the_best(tmp_path: Path) -> None:
    config, honest = ran(tmp_path / "honest", poisoned=False)
    poisoned_config, poisoned = ran(tmp_path / "poisoned", poisoned=True)
    one, other = rows(honest), rows(poisoned)
    for key in ("params", "config_id", "state", "step", "objective", "seed", "split", "best_step"):
        assert [row[key] for row in one.values()] == [row[key] for row in other.values()], key
    figures = (
        "loss",
        "validation_error",
        "validation_loss",
        "pseudo_accuracy",
        "sampling_rate",
        "head_correlation",
    )
    for name in one:
        assert curve(honest, name, *figures) == curve(poisoned, name, *figures)  # on a CPU, to the bit
    errors = [[row["last_test_error"] for row in found.values()] for found in (one, other)]
    assert min(abs(a - b) for a, b in zip(*errors, strict=True)) > 0  # the poison was there
    answers = [best(folder, 3, config) for folder, config in ((honest, config), (poisoned, poisoned_config))]
    told = [
        [(r.config_id, r.mean, r.interval, r.versus_base, r.verdict) for r in answer.ranked]
        for answer in answers
    ]
    assert told[0] == told[1] and answers[0].sentence == answers[1].sentence
