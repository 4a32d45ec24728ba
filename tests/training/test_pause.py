"""A run that is told to leave its process between two evaluations loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbe.data import Dataset
from cbe.errors import Paused
from cbe.store.folder import Store
from cbe.study.trial.process import newest
from cbe.training.loop import Snapshot, train
from tests.conftest import small

FIGURES = ("step", "loss", "loss_unlabeled", "pseudo_accuracy", "sampling_rate", "validation_error")


@pytest.mark.parametrize("ensemble", ["single", "channel", "temporal"])
def test_a_paused_run_goes_on_to_the_numbers_of_an_unbroken_one(
    digits: Dataset, tmp_path: Path, ensemble: str
) -> None:
    config = small(ensemble=ensemble, training={"steps": 8, "eval_every": 4})
    whole, broken = list[Any](), list[Any]()

    def into(found: list[Any], path: Path | None = None) -> Any:
        def report(metrics: dict[str, Any], snapshot: Snapshot) -> None:
            if "paused" not in metrics:
                found.append([metrics[name] for name in FIGURES] + [metrics["pseudo_confusion"]])
            elif path:
                snapshot.save(path)

        return report

    train(config, digits, into(whole))
    steps = iter([False, False, False, False, True])  # asked at steps that do not evaluate: 1, 2, 3, 5, 6
    with pytest.raises(Paused, match="after step 6"):
        train(config, digits, into(broken, tmp_path / "6.pt"), leave=lambda: next(steps))
    train(config, digits, into(broken), resume_from=tmp_path / "6.pt")
    assert broken == whole
    assert len(whole) == 2


def test_a_trial_goes_on_from_before_the_evaluation_that_is_not_recorded(local: Store) -> None:
    folder = local.study("small")
    for step in (100, 130, 200):
        folder.write(f"checkpoints/t0000/1/{step:09d}.pt", b"")
    for recorded, found in ((0, None), (100, 130), (200, 200)):
        name = newest(folder, "t0000", recorded, 100)
        assert (name and int(Path(name).stem)) == found
