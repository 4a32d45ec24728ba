"""What all of it is for: unlabeled images lower the error."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import torch

from cbe.data import open_dataset
from cbe.spec import TrainConfig, read_config
from cbe.training.loop import train

DIGITS = Path(__file__).parents[1] / "studies/train-digits.yaml"
SEEDS = (0, 1, 2)


def test_error(method: str, ensemble: str, seed: int) -> float:
    torch.set_num_threads(1)
    settings = [
        f"method={method}",
        f"ensemble={ensemble}",
        f"training.seed={seed}",
        f"data.split_seed={seed}",
        "training.eval_every=800",
    ]
    config = read_config(TrainConfig, DIGITS, settings)
    summary = train(config, open_dataset(config.data), lambda metrics, snapshot: None)
    assert summary.last.test_error is not None
    return summary.last.test_error


test_error.__test__ = False  # type: ignore[attr-defined]


def test_fixmatch_with_and_without_cbe_beats_labels_alone_by_five_points_on_40_digits() -> None:
    kinds = {"fixmatch": "single", "fixmatch + cbe": "channel", "supervised": "single"}
    jobs = [(name.split()[0], kinds[name], seed) for name in kinds for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        errors = list(pool.map(test_error, *zip(*jobs, strict=True)))
    found = {name: mean(errors[3 * row : 3 * row + 3]) for row, name in enumerate(kinds)}
    assert found["supervised"] - found["fixmatch"] >= 0.05, found
    assert found["supervised"] - found["fixmatch + cbe"] >= 0.05, found
