"""Numbers as the page writes them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NOTHING = "–"


@dataclass(frozen=True)
class Metric:
    """How a metric stands on an axis and in a table."""

    title: str
    factor: float = 1.0
    unit: str = ""
    format: str = ".4g"


METRICS = {
    "validation_error": Metric("validation error", 100, "%", ".2f"),
    "test_error": Metric("test error", 100, "%", ".2f"),
    "validation_loss": Metric("validation loss", format=".4f"),
    "parameters": Metric("parameters", format=",.0f"),
    "macs": Metric("MACs", format=",.0f"),
    "wall_s": Metric("wall time", unit="s", format=".1f"),
    "pseudo_accuracy": Metric("accuracy of pseudo-labels", 100, "%", ".1f"),
    "sampling_rate": Metric("sampling rate", 100, "%", ".1f"),
    "sampling_rate_ensemble": Metric("sampling rate of the ensemble", 100, "%", ".1f"),
    "head_correlation": Metric("correlation of heads"),
    "head_disagreement": Metric("disagreement of heads", 100, "%", ".1f"),
    "variance_ensemble": Metric("variance of the ensemble"),
    "variance_heads": Metric("mean variance of the heads"),
}


def axis_title(metric: str) -> str:
    about = METRICS[metric]
    return f"{about.title}, {about.unit}" if about.unit else about.title


def number(metric: str, value: float | None, sign: bool = False) -> str:
    """A value without its unit, which stands in the head of the table or axis.

    >>> number("validation_error", 0.125), number("validation_error", -0.01, sign=True)
    ('12.50', '−1.00')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    about = METRICS[metric]
    return f"{value * about.factor:{'+' if sign else ''}{about.format}}".replace("-", "−")


def figure(metric: str, value: float | None) -> str:
    """A value with its unit."""
    said, unit = number(metric, value), METRICS[metric].unit
    return f"{said} {unit}" if unit and said != NOTHING else said


def p_value(p: float) -> str:
    """
    >>> p_value(0.0304), p_value(0.00002)
    ('p = 0.030', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def duration(seconds: float | None) -> str:
    """
    >>> duration(7), duration(200), duration(9000)
    ('7 s', '3.3 min', '2.5 h')
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 90 * 60 else f"{seconds / 3600:,.1f} h"


def usd(amount: float | None) -> str:
    return NOTHING if amount is None or not math.isfinite(amount) else f"${amount:,.2f}"


def point(values: Mapping[str, Any]) -> str:
    """Searched values under the shortest names that tell them apart.

    >>> point({"ensemble.heads": 4, "loss.weights.lb": 0.12345})
    'heads 4, lb 0.123'
    """
    times = Counter(key.rpartition(".")[2] for key in values)
    names = {key: last if times[last := key.rpartition(".")[2]] == 1 else key for key in values}
    return ", ".join(
        f"{names[key]} {value:.3g}" if isinstance(value, float) else f"{names[key]} {value}"
        for key, value in values.items()
    )


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
