"""What there is to choose from: a name, and where its implementation lives.

An extension is one file and one line here. Implementations are imported when first used, so that checking a
file or printing help never waits for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SOURCES = {
    "digits": "cbe.data.sources.digits:load",
    "fashion_mnist": "cbe.data.sources.torchvision_sets:fashion_mnist",
    "cifar10": "cbe.data.sources.torchvision_sets:cifar10",
    "cifar100": "cbe.data.sources.torchvision_sets:cifar100",
    "svhn": "cbe.data.sources.torchvision_sets:svhn",
    "stl10": "cbe.data.sources.torchvision_sets:stl10",
    "parquet": "cbe.data.sources.parquet:load",
    "folder": "cbe.data.sources.folder:load",
}

METHODS = {
    "supervised": "cbe.ssl.methods.supervised:METHOD",
    "pseudo-label": "cbe.ssl.methods.pseudo_label:METHOD",
    "pi-model": "cbe.ssl.methods.pi_model:METHOD",
    "mean-teacher": "cbe.ssl.methods.mean_teacher:METHOD",
    "uda": "cbe.ssl.methods.uda:METHOD",
    "fixmatch": "cbe.ssl.methods.fixmatch:METHOD",
    "flexmatch": "cbe.ssl.methods.flexmatch:METHOD",
    "freematch": "cbe.ssl.methods.freematch:METHOD",
    "softmatch": "cbe.ssl.methods.softmatch:METHOD",
}

ENSEMBLES = {
    "single": "cbe.nn.ensembles:single",
    "model": "cbe.nn.ensembles:model",
    "temporal": "cbe.nn.ensembles:single",  # one network; its past predictions are the ensemble
    "multihead": "cbe.nn.ensembles:multihead",
    "channel": "cbe.nn.ensembles:channel",
}


def load(registry: dict[str, str], name: str) -> Any:
    """The implementation registered under a name."""
    module, _, attribute = registry[name].partition(":")
    return getattr(import_module(module), attribute)
