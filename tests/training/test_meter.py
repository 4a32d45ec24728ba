"""Sums of a meter that outlive the metrics that were there when they were saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbe.data import Dataset
from cbe.training import checkpoint, meter
from cbe.training.run import Run
from cbe.training.step import train_step
from tests.conftest import small


def test_a_checkpoint_from_before_a_metric_was_added_is_resumed_and_its_sums_go_on(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = Run(small(), digits)
    train_step(earlier)
    checkpoint.save(earlier.state_dict(), tmp_path / "checkpoint.pt")
    before, confusion = earlier.meter.read(), earlier.meter.confusion()

    monkeypatch.setattr(meter, "TERMS", (*meter.TERMS[:1], "entropy", *meter.TERMS[1:]))
    monkeypatch.setattr(meter, "COUNTS", (*meter.COUNTS, "certain"))
    resumed = Run(small(), digits)
    resumed.load_state_dict(checkpoint.load(tmp_path / "checkpoint.pt"))
    assert resumed.meter.read() == before | {"loss_entropy": 0.0}
    assert resumed.meter.confusion() == confusion
