"""Interleaved measurement: every contender once a round, ratios within a round, medians over rounds."""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


def interleaved(contenders: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; one round before that warms up and is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        # Another order every round: what ran before leaves caches and memory in its own state.
        for name in random.Random(number).sample(names, len(names)):
            start = time.perf_counter()
            contenders[name]()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(above: list[float], below: list[float]) -> dict[str, float]:
    """Median, smallest and largest of the rounds' ratios."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return {"ratio": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}


def machine() -> dict[str, Any]:
    """Where and with what a figure was measured."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_before": os.getloadavg()[0],
    }


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
