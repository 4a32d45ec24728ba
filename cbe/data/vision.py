"""torchvision, importable also beside a torch build that its compiled operators do not fit.

The published torchvision is linked against CUDA; beside a CPU-only torch its extension cannot load, and
torchvision then fails at import, because it registers fake kernels for two operators that do not exist
(pytorch/vision#9085). Only its Python parts are needed here, so those two operators are declared first.
Import torchvision through this module and nowhere else.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_OPERATORS = ("nms", "qnms")


def _extension_loads() -> bool:
    spec = importlib.util.find_spec("torchvision")
    places = spec.submodule_search_locations if spec else None
    for extension in (found for place in places or () for found in Path(place).glob("_C*.so")):
        try:
            torch.ops.load_library(str(extension))
        except OSError:
            return False
        return True
    return False


if not _extension_loads():
    # The library object owns the declarations: they are gone when it is, hence a module global.
    _LIBRARY = torch.library.Library("torchvision", "DEF")
    for _name in _OPERATORS:
        _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchvision import datasets, transforms  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

__all__ = ["datasets", "transforms", "v2"]
