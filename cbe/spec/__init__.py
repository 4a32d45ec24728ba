"""Files the user writes, checked and typed."""

from cbe.spec.files import read_config
from cbe.spec.train import Data, Ensemble, Loss, Method, Network, TrainConfig, Training, Weights

__all__ = [
    "Data",
    "Ensemble",
    "Loss",
    "Method",
    "Network",
    "TrainConfig",
    "Training",
    "Weights",
    "read_config",
]
