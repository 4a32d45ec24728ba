"""The whole training step against its floor, against a single head, and against a plain PyTorch loop.

    python -m benchmarks.step --model wrn-28-2 --rounds 10

B = 32, μ = 7, one labeled view, 3×32×32. The floor is a bare forward and backward of the same images through
the same network, with `split` also a forward without gradient of view 2: what nobody can do without.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.harness import interleaved, machine, ratio
from benchmarks.plain import STEPS, PlainFixMatch
from benchmarks.views import pictures
from cbe.data import Dataset, ImageSet, Split
from cbe.spec import TrainConfig
from cbe.training.run import Run
from cbe.training.step import train_step

BATCH, RATIO = 32, 7


def dataset() -> Dataset:
    images = pictures().numpy()
    labels = np.arange(len(images)) % 10
    every = ImageSet(images, labels)
    few = ImageSet(images[:40], labels[:40])
    index = np.arange(40)
    split = Split(index, index, np.arange(len(images)), False)
    names = tuple(str(label) for label in range(10))
    mean, std = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
    return Dataset("china", names, True, few, every, few, None, mean, std, split)


def run_of(model: str, ensemble: str, forward: str, data: Dataset) -> Run:
    config = {
        "model": model,
        "ensemble": {"kind": ensemble} | ({"heads": 5} if ensemble == "channel" else {}),
        "loss": {"labeled_views": 1},
        "training": {"forward": forward, "batch_size": BATCH, "unlabeled_ratio": RATIO, "compile": False},
    }
    return Run(TrainConfig.model_validate(config), data)


def floor(run: Run, forward: str) -> Callable[[], None]:
    """The forward and backward of a step, and nothing else."""
    unlabeled = BATCH * RATIO
    learning = BATCH + unlabeled * (2 if forward == "joint" else 1)
    images = torch.randn(learning, 3, 32, 32, device=run.mode.device).contiguous(
        memory_format=run.mode.layout
    )

    def once() -> None:
        if forward == "split":
            with torch.no_grad(), run.mode.autocast():
                run.forward(images[:unlabeled])
        with run.mode.autocast():
            logits = run.forward(images).logits
        run.optimiser.zero_grad(set_to_none=True)
        logits.float().square().mean().backward()

    return once


def measure(model: str, rounds: int) -> dict[str, Any]:
    """All step times of one network, interleaved."""
    data, where = dataset(), machine()
    contenders: dict[str, Callable[[], Any]] = {}
    # A difference of a percent wants its two sides next to each other.
    pair = {name: partial(train_step, run_of(model, name, "split", data)) for name in ("single", "channel")}
    close = interleaved(pair, 2 * rounds)
    for forward in ("split", "joint"):
        single, channel = (run_of(model, ensemble, forward, data) for ensemble in ("single", "channel"))
        contenders[f"single {forward}"] = partial(train_step, single)
        contenders[f"channel {forward}"] = partial(train_step, channel)
        contenders[f"floor {forward}"] = floor(run_of(model, "channel", forward, data), forward)
    labels = torch.from_numpy(data.unlabeled.labels)
    plain = PlainFixMatch(model, torch.from_numpy(data.unlabeled.images), labels)
    try:
        seconds = interleaved(contenders | {"plain": plain}, rounds)
    finally:
        plain.close()
    seconds["plain"] = [each / STEPS for each in seconds["plain"]]
    shares = [1 - a / b for a, b in zip(seconds["floor split"], seconds["channel split"], strict=True)]
    return {
        "model": model,
        "step_s": {name: statistics.median(values) for name, values in seconds.items()},
        "channel over single": ratio(close["channel"], close["single"]),
        "split over its floor": ratio(seconds["channel split"], seconds["floor split"]),
        "joint over its floor": ratio(seconds["channel joint"], seconds["floor joint"]),
        "plain loop over split": ratio(seconds["plain"], seconds["single split"]),
        "plain loop over joint": ratio(seconds["plain"], seconds["single joint"]),
        "share outside forward and backward": {"ratio": statistics.median(shares), "n": len(shares)},
        "machine": where,
    }


def _peak(model: str, ensemble: str, answer: Any) -> None:
    run = run_of(model, ensemble, "split", dataset())
    for _ in range(3):
        train_step(run)
    # Not getrusage: its peak is handed down from the process that started this one.
    with open("/proc/self/status", encoding="utf-8") as status:
        answer.put(next(int(line.split()[1]) / 2**10 for line in status if line.startswith("VmHWM")))


def peak_mib(model: str, ensemble: str) -> float:
    """Largest resident size of a fresh process that takes three steps."""
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    process = context.Process(target=_peak, args=(model, ensemble, answer))
    process.start()
    process.join()
    return float(answer.get())


def memory(model: str, rounds: int = 3) -> dict[str, Any]:
    pairs = [(peak_mib(model, "channel"), peak_mib(model, "single")) for _ in range(rounds)]
    channel, single = ([pair[i] for pair in pairs] for i in (0, 1))
    return {
        "channel_mib": statistics.median(channel),
        "single_mib": statistics.median(single),
        **ratio(channel, single),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="wrn-28-2")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print(json.dumps(measure(options.model, options.rounds), indent=2))


if __name__ == "__main__":
    main()
