"""`joint` or `split`: error at equal wall time on Fashion-MNIST with 40 labels, which decides the default.

    python -m benchmarks.forward PATH_OF_FASHION_MNIST_PARQUET --json studies/records/forward.json

Step times of both are measured interleaved; `split` then trains for the given number of steps, and `joint`
for as many as fit into the same time. Both use the same seeds and label splits; the difference is paired.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import interleaved, machine, ratio
from cbe.data import open_dataset
from cbe.spec import TrainConfig
from cbe.training.loop import train
from cbe.training.run import Run
from cbe.training.step import train_step


def config(path: str, forward: str, steps: int, seed: int) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {
                "source": "parquet",
                "path": path,
                "labels": 40,
                "validation": 1000,
                "label_split": seed,
            },
            "model": {"name": "wrn-10-1", "bn_momentum": 0.02},
            "ensemble": {"kind": "channel", "heads": 5},
            "method": "fixmatch",
            "training": {"steps": steps, "ema": 0.99, "forward": forward, "seed": seed, "eval_every": steps},
        }
    )


def test_error(path: str, forward: str, steps: int, seed: int) -> float:
    torch.set_num_threads(1)
    wanted = config(path, forward, steps, seed)
    summary = train(wanted, open_dataset(wanted.data), lambda metrics, snapshot: None)
    assert summary.last["test_error"] is not None
    return summary.last["test_error"]


def measure(path: str, steps: int, seeds: int, rounds: int = 10) -> dict[str, Any]:
    where, data = machine(), open_dataset(config(path, "split", steps, 0).data)
    runs = {forward: Run(config(path, forward, steps, 0), data) for forward in ("split", "joint")}
    seconds = interleaved({name: partial(train_step, run) for name, run in runs.items()}, rounds)
    slower = ratio(seconds["joint"], seconds["split"])
    lengths = {"split": steps, "joint": round(steps / slower["ratio"])}
    jobs = [(name, lengths[name], seed) for seed in range(seeds) for name in lengths]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        errors = list(pool.map(test_error, *zip(*((path, *job) for job in jobs), strict=True)))
    found = {name: [e for e, job in zip(errors, jobs, strict=True) if job[0] == name] for name in lengths}
    paired = [a - b for a, b in zip(found["joint"], found["split"], strict=True)]
    return {
        "question": "test error of FixMatch + CBE, wrn-10-1, Fashion-MNIST, 40 labels, at equal wall time",
        "joint over split, step time": slower,
        "steps": lengths,
        "seeds": seeds,
        "test_error": found,
        "mean": {name: statistics.mean(values) for name, values in found.items()},
        "joint minus split, mean": statistics.mean(paired),
        "standard error": statistics.stdev(paired) / math.sqrt(seeds) if seeds > 1 else None,
        "machine": where,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", help="folder with train.parquet and test.parquet")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.path, options.steps, options.seeds)
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
