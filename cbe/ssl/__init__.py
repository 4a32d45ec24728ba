"""Semi-supervised learning: losses, threshold policies and methods."""

from __future__ import annotations

from typing import Any

from cbe.spec import TrainConfig
from cbe.spec.methods import METHODS
from cbe.spec.registry import load
from cbe.ssl.method import Method

__all__ = ["Method", "method_of", "resolve"]


def method_of(config: TrainConfig) -> Method:
    """The method a config names, with its own defaults."""
    method: Method = load(METHODS, config.method.name)
    return method


def resolve(config: TrainConfig) -> TrainConfig:
    """The config with every `null` that the method or the ensemble decides filled in.

    >>> resolve(TrainConfig()).method.threshold  # FixMatch's τ with several heads
    0.9
    """
    default, several = method_of(config), config.heads > 1
    private = 1.0 if config.private_channels else 0.0
    plain = config.to_plain()
    if several and default.ensemble_threshold:
        _fill(plain["method"], threshold=default.ensemble_threshold)
    _fill(plain["ensemble"], heads=config.heads, private_channels=config.private_channels or None)
    own = {name: getattr(default, name) for name, value in plain["method"].items() if value is None}
    _fill(plain["method"], **own)
    # The method's weight belongs to its own loss, which eq. 3 replaces where there are several heads.
    _fill(plain["loss"]["weights"], unlabeled=1.0 if several else default.weight, lb=private, lv=private)
    return TrainConfig.model_validate(plain)


def _fill(section: dict[str, Any], **defaults: Any) -> None:
    section.update({key: value for key, value in defaults.items() if section[key] is None})
