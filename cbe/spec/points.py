"""A point of a search, put over the config that it varies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cbe.errors import ConfigError
from cbe.spec.conditions import without_unused
from cbe.spec.ensembles import WITH_HEADS
from cbe.spec.faults import faults_of
from cbe.spec.methods import MethodSettings
from cbe.spec.train import TrainConfig


def config_at(base: TrainConfig, point: Mapping[str, Any]) -> TrainConfig:
    """The base with a point's values; ConfigError where it cannot be built."""
    plain = base.to_plain()
    _leave_behind(plain, point)
    for key, value in point.items():
        *above, last = key.split(".")
        section = plain
        for part in above:
            section = section.setdefault(part, {})
        section[last] = value
    try:
        made = TrainConfig.model_validate(plain)
    except ValidationError as error:
        raise ConfigError(faults_of(error, TrainConfig, plain)) from None
    return TrainConfig.model_validate(without_unused(made.to_plain(), TrainConfig().to_plain()))


def _leave_behind(plain: dict[str, Any], point: Mapping[str, Any]) -> None:
    """Takes out of the base what it says of an ensemble or a method that the point replaces by another."""
    was, kind = plain["ensemble"]["kind"], point.get("ensemble.kind")
    if kind not in (None, was):
        both_have_heads = was in WITH_HEADS and kind in WITH_HEADS
        plain["ensemble"] = {"heads": plain["ensemble"]["heads"] if both_have_heads else None}
        plain["loss"]["weights"].update(lb=None, lv=None)
    if point.get("method.name") not in (None, plain["method"]["name"]):
        null = [name for name, field in MethodSettings.model_fields.items() if field.default is None]
        plain["method"].update(dict.fromkeys(null))  # the settings that each method has its own value of
