"""What there is to choose from: a name, and where its implementation lives.

An extension is one file and one line here. Implementations are imported when first used, so that checking a
file or printing help never waits for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Entry:
    """A method or an ensemble, and the settings it takes beside those that all of them take."""

    where: str
    takes: tuple[str, ...] = ()


_UNLABELED = ("method.temperature", "method.ramp", "loss.weights.unlabeled")
_THRESHOLD = (*_UNLABELED, "method.threshold")
_ADAPTIVE = (*_UNLABELED, "method.momentum")

METHODS = {
    "supervised": Entry("cbe.ssl.methods.supervised:METHOD"),
    "pseudo-label": Entry("cbe.ssl.methods.pseudo_label:METHOD", _THRESHOLD),
    "pi-model": Entry("cbe.ssl.methods.pi_model:METHOD", _UNLABELED),
    "mean-teacher": Entry("cbe.ssl.methods.mean_teacher:METHOD", _UNLABELED),
    "uda": Entry("cbe.ssl.methods.uda:METHOD", _THRESHOLD),
    "fixmatch": Entry("cbe.ssl.methods.fixmatch:METHOD", _THRESHOLD),
    "flexmatch": Entry("cbe.ssl.methods.flexmatch:METHOD", _THRESHOLD),
    "freematch": Entry("cbe.ssl.methods.freematch:METHOD", (*_ADAPTIVE, "method.fairness")),
    "softmatch": Entry("cbe.ssl.methods.softmatch:METHOD", _ADAPTIVE),
}

HEADS = "ensemble.heads"  # what else an ensemble with heads takes, it takes with 2 or more
_WITH_HEADS = (HEADS, "loss.target", "loss.agreement")
_LOW_BIAS = ("ensemble.private_channels", "loss.lb_correlation", "loss.lb_pairs", "loss.weights.lb")

ENSEMBLES = {
    "single": Entry("cbe.nn.ensembles:single"),
    "model": Entry("cbe.nn.ensembles:model", _WITH_HEADS),
    # one network; its past predictions are the ensemble
    "temporal": Entry("cbe.nn.ensembles:single", ("ensemble.momentum",)),
    "multihead": Entry("cbe.nn.ensembles:multihead", _WITH_HEADS),
    "channel": Entry("cbe.nn.ensembles:channel", (*_WITH_HEADS, *_LOW_BIAS)),
}


def load(registry: Mapping[str, str] | Mapping[str, Entry], name: str) -> Any:
    """The implementation registered under a name."""
    entry = registry[name]
    module, _, attribute = (entry.where if isinstance(entry, Entry) else entry).partition(":")
    return getattr(import_module(module), attribute)
