"""The registry of metrics: one entry is all that a metric takes beside the line that computes it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cbe.service.routes.pages import _asset
from cbe.spec import Objective
from cbe.spec.metrics import CHARTS, METRICS, OBJECTIVES, REPORTED, WHILE_TRAINING, on_test
from cbe.store.schema import TABLES
from docs.reference.store import meaning

ROOT = Path(__file__).parent.parent.parent
COMPUTED = '                "confidence": probs.amax(dim=1).mean().item(),\n'
ENTRY = """    Metric("confidence", "mean confidence", "confidence on validation images", PERCENT,
           labels="validation", objective="maximize", margin="2 points", show=True, log=True,
           curve=("errors", "sure"), panel="heads"),
"""


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before))


def test_a_line_and_an_entry_add_a_metric_and_an_objective_everywhere(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "cbe", tmp_path / "cbe", ignore=shutil.ignore_patterns("__pycache__"))
    insert(tmp_path / "cbe/training/evaluate.py", '                "confusion": ', COMPUTED)
    insert(tmp_path / "cbe/spec/metrics.py", '    Metric("steps_per_s", ', ENTRY)
    done = subprocess.run(
        [sys.executable, "-m", "tests.new_metric", "confidence", "store", "found.json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert 0 < found["reported"] <= 1 and found["column"]
    assert found["meaning"] == "confidence on validation images"
    assert found["figure"] == "50.00 %"
    assert (found["direction"], found["margin"]) == ("maximize", 0.02)
    assert "% mean confidence" in found["headline"]
    assert "mean confidence " in found["log"] and "mean confidence " in done.stdout
    assert "maximize mean confidence" in found["report"]
    assert '"text":"mean confidence, %"' in found["report"]  # the axis of its cell among the heads'
    assert '"confidence": {"title": "mean confidence"' in found["page"]


def test_every_objective_has_its_direction_and_what_is_none_is_refused() -> None:
    assert all(Objective(metric=name).direction == METRICS[name].objective for name in OBJECTIVES)
    assert Objective(metric="validation_loss", direction="maximize").direction == "maximize"
    assert [name for name in OBJECTIVES if on_test(name)] == [OBJECTIVES[-1]] == ["test_error"]
    assert {"parameters", "macs", "wall_s"} == set(OBJECTIVES) - set(WHILE_TRAINING)
    with pytest.raises(ValueError, match="metric"):
        Objective(metric="pseudo_accuracy")


def test_every_metric_has_a_column_a_meaning_and_a_chart_that_exists() -> None:
    for name, metric in METRICS.items():
        table = "metrics" if name in REPORTED else "trials"
        assert name in TABLES[table].schema.names
        assert meaning(table, name) == metric.meaning
        assert metric.curve is None or metric.curve[0] in CHARTS


def test_the_service_tells_its_page_of_every_metric() -> None:
    first, second = _asset("metrics.js")[0].decode().splitlines()
    metrics = json.loads(first.removeprefix("export const METRICS = ").removesuffix(";"))
    charts = json.loads(second.removeprefix("export const CHARTS = ").removesuffix(";"))
    assert {name: each["title"] for name, each in metrics.items()} == {
        name: each.title for name, each in METRICS.items()
    }
    assert charts.keys() == CHARTS.keys()
