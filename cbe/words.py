"""Numbers, times and foreign texts as a person reads them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from cbe.spec.metrics import SECONDS, unit_of
from cbe.spec.search import KEYS
from cbe.store.states import TRIAL_STATES

NOTHING = "–"
NOT_SELECTED = "* not used for selection"

_ORDER = {key: place for place, key in enumerate(KEYS)}


def figure(metric: str | None, value: float | None) -> str:
    """A metric's value with its unit.

    >>> figure("validation_error", 0.125), figure("sampling_rate", 0.5), figure("loss", 1.25)
    ('12.50 %', '50.00 %', '1.25')
    """
    unit, said = unit_of(metric), number(metric, value)
    if said != NOTHING and unit is SECONDS:
        return duration(value)
    return f"{said} {unit.sign}" if said != NOTHING and unit.sign else said


def number(
    metric: str | None, value: float | None, *, sign: bool = False, decimals: int | None = None
) -> str:
    """A metric's value without its unit, which is in the head of the table or axis.

    >>> number("validation_error", 0.125), number("validation_error", -0.01, sign=True)
    ('12.50', '−1.00')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    unit = unit_of(metric)
    digits = unit.decimals if decimals is None else decimals
    form = ".4g" if digits is None else f",.{digits}f"
    return re.sub("^-", "−", f"{value * unit.factor:{'+' if sign else ''}{form}}")


def p_value(p: float) -> str:
    """How likely so large a difference is by chance.

    >>> p_value(0.0304), p_value(0.00002)
    ('p = 0.030', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def duration(seconds: float | None) -> str:
    """A time of whatever size in its own unit.

    >>> duration(7), duration(200), duration(9000)
    ('7 s', '3.3 min', '2.5 h')
    """
    if seconds is None:
        return NOTHING
    seconds = max(0.0, seconds)  # a clock may have been set back
    unit, sign = _unit(seconds)
    return f"{seconds / unit:.0f} {sign}" if unit == 1 else f"{seconds / unit:.1f} {sign}"


def span(low_s: float, high_s: float) -> str:
    """A range of times in one unit.

    >>> span(170, 420), span(100, 110)
    ('3 to 7 min', 'about 2 min')
    """
    unit, sign = _unit(high_s)
    digits = 1 if sign == "h" else 0
    low, high = (f"{max(value / unit, 0):.{digits}f}" for value in (low_s, high_s))
    return f"about {high} {sign}" if low == high else f"{low} to {high} {sign}"


def _unit(seconds: float) -> tuple[int, str]:
    return (1, "s") if seconds < 90 else (60, "min") if seconds < 90 * 60 else (3600, "h")


def point(values: Mapping[str, Any]) -> str:
    """Searched values under the shortest names that tell them apart.

    >>> point({"ensemble.heads": 4, "loss.weights.lb": 0.12345})
    'heads 4, lb 0.123'
    """
    in_order = sorted(values, key=lambda key: _ORDER.get(key, len(_ORDER)))
    times = Counter(_last(key) for key in values)
    names = {key: _last(key) if times[_last(key)] == 1 else key for key in in_order}
    return ", ".join(f"{name} {_value(values[key])}" for key, name in names.items())


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def counts(by_state: Mapping[str, int]) -> str:
    """Trials by state, as `3 completed · 1 failed`."""
    return " · ".join(f"{by_state[state]} {state}" for state in TRIAL_STATES if by_state.get(state))


def clean(text: object) -> str:
    """A text from elsewhere without what would steer a terminal; lines stay."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(text)).strip()


def first_line(text: object) -> str:
    return next(iter(clean(text).splitlines()), "")


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def to_come(trials: int, runs: int, searching: bool) -> str | None:
    """What a study that runs has still to do: trials of its search, and runs of its confirmation at most.

    >>> to_come(9, 36, searching=True), to_come(0, 1, searching=False)
    ('9 trials, then a confirmation of at most 36 runs', 'at most 1 run of the confirmation')
    """
    if not searching:
        return f"at most {plural(runs, 'run')} of the confirmation" if runs else None
    parts = [plural(trials, "trial")] if trials else []
    parts += [f"a confirmation of at most {plural(runs, 'run')}"] if runs else []
    return ", then ".join(parts) or None


def finite(value: Any) -> Any:
    """A value with null for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
