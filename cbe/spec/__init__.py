"""Files the user writes, checked and typed."""

from cbe.spec.ensembles import Ensemble
from cbe.spec.files import read_config
from cbe.spec.methods import MethodSettings
from cbe.spec.parameters import Parameter
from cbe.spec.settings import Objective
from cbe.spec.study import STUDY_KEYS, StudyConfig
from cbe.spec.train import Data, Loss, Network, TrainConfig, Training, Weights

__all__ = [
    "STUDY_KEYS",
    "Data",
    "Ensemble",
    "Loss",
    "MethodSettings",
    "Network",
    "Objective",
    "Parameter",
    "StudyConfig",
    "TrainConfig",
    "Training",
    "Weights",
    "read_config",
]
