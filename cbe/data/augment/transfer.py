"""From the host to the device without waiting for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# What is small and known on the host is worked out in numpy: its calls cost a fifth of torch's.
Floats = NDArray[np.float64]


def to_device(host: NDArray[Any], device: torch.device) -> Tensor:
    """The array as a tensor there; sent from pinned memory, or the copy would wait for the device's queue."""
    tensor = torch.from_numpy(host)
    if device.type == "cpu":
        return tensor
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
