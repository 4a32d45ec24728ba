"""Which way of running the network is fastest on the device at hand; `cbe/training/device.py` follows it.

python -m benchmarks.modes --model wrn-28-2
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.harness import interleaved, machine, ratio
from cbe import nn
from cbe.spec import TrainConfig

IMAGES = 256


def contender(
    model: str, device: torch.device, layout: torch.memory_format, half: bool, compiled: bool
) -> Callable[[], None]:
    network = nn.build(TrainConfig.model_validate({"model": model}), 3, 10).to(device)
    network = network.to(memory_format=layout)  # type: ignore[call-overload]
    images = torch.randn(IMAGES, 3, 32, 32, device=device).contiguous(memory_format=layout)
    forward = torch.compile(network) if compiled else network

    def once() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            logits = forward(images).logits
        network.zero_grad(set_to_none=True)
        logits.float().square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return once


def measure(model: str, rounds: int) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    contenders: dict[str, Callable[[], None]] = {}
    first: dict[str, float] = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        for half in (False, True) if device.type == "cuda" else (False,):
            for compiled in (False, True):
                parts = (
                    str(layout).removeprefix("torch."),
                    "bfloat16" if half else "float32",
                    "compiled" if compiled else "eager",
                )
                name = " ".join(parts)
                contenders[name] = contender(model, device, layout, half, compiled)
                start = time.perf_counter()
                contenders[name]()
                first[name] = time.perf_counter() - start
    seconds = interleaved(contenders, rounds)
    base = seconds["contiguous_format float32 eager"]
    return {
        "model": model,
        "first_s": first,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "over contiguous float32 eager": {name: ratio(values, base) for name, values in seconds.items()},
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="wrn-28-2")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(json.dumps(measure(options.model, options.rounds), indent=2))


if __name__ == "__main__":
    main()
