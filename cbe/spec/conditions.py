"""Which settings mean anything: those that the method and the ensemble of a config take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from cbe.spec.ensembles import ENSEMBLES, HEADS
from cbe.spec.faults import Finding
from cbe.spec.methods import METHODS
from cbe.spec.registry import Entry

Values = Mapping[str, Any]  # by dotted key

_REGISTRIES: Mapping[str, Mapping[str, Entry]] = {"method.name": METHODS, "ensemble.kind": ENSEMBLES}
_DECIDED_BY = {
    key: decider
    for decider, registry in _REGISTRIES.items()
    for entry in registry.values()
    for key in entry.takes
}
# What `cbe.ssl.resolve` writes in the place of null where nothing uses a setting.
_NEUTRAL = {
    **{HEADS: 1, "method.temperature": 1, "method.ramp": 0, "method.fairness": 0},
    **{"loss.weights.unlabeled": 1, "loss.weights.lb": 0},
}


def applies(key: str, values: Values) -> bool:
    """Whether a key means anything where the others have these values."""
    if key not in _DECIDED_BY:
        return True
    decider = _DECIDED_BY[key]
    takes = _REGISTRIES[decider][values[decider]].takes
    return key in takes and (key == HEADS or HEADS not in takes or values.get(HEADS) != 1)


def deciders(key: str) -> tuple[str, ...]:
    """The keys whose values decide whether a key means anything."""
    if key not in _DECIDED_BY:
        return ()
    decider = _DECIDED_BY[key]
    return (decider, HEADS) if decider == "ensemble.kind" and key != HEADS else (decider,)


def value_at(key: str, plain: Any) -> Any:
    """The value of a dotted key in a plain config."""
    for part in key.split("."):
        plain = plain[part]
    return plain


def without_unused(plain: dict[str, Any], default: Any) -> dict[str, Any]:
    """A plain config whose settings that nothing uses have their default values."""
    values = {key: value_at(key, plain) for key in (*_DECIDED_BY, *_REGISTRIES)}
    for key in _DECIDED_BY:
        if not applies(key, values):
            *above, last = key.split(".")
            value_at(".".join(above), plain)[last] = value_at(key, default)
    return plain


def unused(
    plain: Any, default: Any, searched: Mapping[str, Sequence[Any]] | None = None
) -> Iterator[Finding]:
    """The settings of a plain config that nothing uses: where each is, what is wrong, what to do next.

    A method's and an ensemble's own settings belong to the one that is named beside them. Those of the loss
    belong to any that is searched; `searched` has the values of the keys that are. One with its default value
    may stay: a config that was written out has them all.
    """
    values = {key: value_at(key, plain) for key in (*_DECIDED_BY, *_REGISTRIES)}
    for key, decider in _DECIDED_BY.items():
        value, name = values[key], values[decider]
        if value in (None, value_at(key, default), _NEUTRAL.get(key)):
            continue
        options = searched if searched and key.startswith("loss.") else {}
        keys = deciders(key)
        points = product(*(options.get(each, [values[each]]) for each in keys))
        if any(applies(key, {**values, **dict(zip(keys, point, strict=True))}) for point in points):
            continue
        what, takes = decider.partition(".")[0], _REGISTRIES[decider][name].takes
        owner = f"{what} {name}" + (" with 1 head" if key in takes else "")
        others = [other for other, entry in _REGISTRIES[decider].items() if key in entry.takes]
        wanted = "2 heads or more" if key in takes else f"{what} {' or '.join(others)}"
        setting = key.removeprefix(f"{what}.")
        yield (
            tuple(key.split(".")),
            f"{value!r}: {owner} takes no {setting}",
            f"leave it out, or use {wanted}",
        )
