"""What all of it is for: unlabeled images lower the error."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import pytest
import torch

from cbe.data import open_dataset
from cbe.spec import TrainConfig, read_config
from cbe.training.loop import train

DIGITS = Path(__file__).parents[2] / "studies/train-digits.yaml"


def test_error(method: str, ensemble: str, seed: int, steps: int) -> float:
    torch.set_num_threads(1)
    settings = [
        f"method={method}",
        f"ensemble={ensemble}",
        f"training.seed={seed}",
        f"data.label_split={seed}",
        f"training.steps={steps}",
        f"training.eval_every={steps}",
    ]
    config = read_config(TrainConfig, DIGITS, settings)
    summary = train(config, open_dataset(config.data), lambda metrics, snapshot: None)
    assert summary.last["test_error"] is not None
    return summary.last["test_error"]


test_error.__test__ = False  # type: ignore[attr-defined]


KINDS = {"fixmatch": "single", "fixmatch + cbe": "channel", "supervised": "single"}


def test_fixmatch_with_and_without_cbe_beats_labels_alone_on_40_digits() -> None:
    found = {name: test_error(name.split()[0], kind, seed=2, steps=300) for name, kind in KINDS.items()}
    assert found["supervised"] - found["fixmatch"] >= 0.03, found
    assert found["supervised"] - found["fixmatch + cbe"] >= 0.03, found


@pytest.mark.chaos
def test_over_three_seeds_fixmatch_beats_labels_alone_by_five_points() -> None:
    jobs = [(name.split()[0], KINDS[name], seed, 800) for name in KINDS for seed in range(3)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        errors = list(pool.map(test_error, *zip(*jobs, strict=True)))
    found = {name: mean(errors[3 * row : 3 * row + 3]) for row, name in enumerate(KINDS)}
    assert found["supervised"] - found["fixmatch"] >= 0.05, found
    assert found["supervised"] - found["fixmatch + cbe"] >= 0.05, found
