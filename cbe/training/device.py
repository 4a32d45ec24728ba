"""What runs fastest on which device.

CPU: float32 in channels_last; a compiled step is faster but takes a minute to make, so it is on request.
bfloat16 is refused there: oneDNN's kernels for it end the whole process on machines that announce AMX and do
not grant it. `benchmarks/modes.py` measures the choices on the device at hand.
CUDA: bfloat16 where the card has it, channels_last, compiled.
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass

import torch

from cbe.errors import ConfigError, Fault
from cbe.spec import Training


@dataclass(frozen=True)
class Mode:
    device: torch.device
    precision: torch.dtype
    compile: bool
    layout: torch.memory_format = torch.channels_last

    @property
    def precision_name(self) -> str:
        return str(self.precision).removeprefix("torch.")

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16)


def keep_freed_memory() -> None:
    """Makes glibc keep the memory of one step for the next.

    It hands blocks above 32 MiB back to the system at once, and a WRN-28-2 step on a CPU then takes about a
    hundred thousand page faults to get its activations back.
    """
    trim_threshold, mmap_max = -1, -4  # <malloc.h>
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


def choose(training: Training) -> Mode:
    """The device and how to use it, as the config says or as is fastest there."""
    device = _device(training.device)
    on_gpu = device.type == "cuda"
    if training.precision == "bfloat16" and not on_gpu:
        raise ConfigError(
            [
                Fault(
                    "training.precision",
                    f"bfloat16 is not supported on {device}",
                    "use float32 or leave it out",
                )
            ]
        )
    fast = on_gpu and torch.cuda.is_bf16_supported()
    wanted = training.precision or ("bfloat16" if fast else "float32")
    compiled = on_gpu if training.compile is None else training.compile
    return Mode(device, torch.bfloat16 if wanted == "bfloat16" else torch.float32, compiled)


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("neither a CPU nor a CUDA device")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        problem = f"{name!r} cannot be used here ({str(error).splitlines()[0]})"
        raise ConfigError([Fault("training.device", problem, "leave it out, or give cpu or cuda")]) from error
    return device
