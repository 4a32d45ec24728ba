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


def load(registry: Mapping[str, str] | Mapping[str, Entry], name: str) -> Any:
    """The implementation registered under a name."""
    entry = registry[name]
    module, _, attribute = (entry.where if isinstance(entry, Entry) else entry).partition(":")
    return getattr(import_module(module), attribute)
