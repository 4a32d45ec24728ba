"""Whether torch's threads wait for each other on cores that others keep busy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

TRY_S = 0.15  # with each number of threads
WORTH = 1.5  # times as fast that one thread must be to be told


def _steps_per_s() -> float:
    """Convolutions forward and back, as a small network has them; no random number of a run is drawn."""
    images, weights = torch.ones(32, 16, 32, 32), torch.ones(16, 16, 3, 3, requires_grad=True)
    count, started = -1, time.perf_counter()
    while (taken_s := time.perf_counter() - started) < TRY_S or count < 3:
        F.conv2d(images, weights, padding=1).relu().sum().backward()
        if count < 0:  # the first one makes the threads
            started = time.perf_counter()
        count += 1
    return count / taken_s


def advice(measured: Callable[[], float] = _steps_per_s) -> str | None:
    """One line where one thread is clearly faster here and now than torch's own number; None elsewhere.

    Nothing is changed: sums over another number of threads round otherwise, and a run must give the same
    numbers however busy the machine is.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return None
    try:
        several = measured()
        torch.set_num_threads(1)
        one = measured()
    finally:
        torch.set_num_threads(threads)
    if one < WORTH * several:
        return None
    return (
        f"Other processes probably use these cores: one thread is about {one / several:.0f} times as fast as "
        f"{threads} now. To use one, stop and start again with OMP_NUM_THREADS=1."
    )
