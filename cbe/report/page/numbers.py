"""Numbers as the page writes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cbe.words import NOTHING


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


def usd(amount: float | None) -> str:
    """An amount of money; a dash where there is no price, or nothing was spent.

    >>> usd(1234.5), usd(0.0)
    ('$1,234.50', '–')
    """
    return f"${amount:,.2f}" if amount and math.isfinite(amount) else NOTHING
