"""Figures in words that claim no more than their interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cbe.report.paired import Difference, Interval


@dataclass(frozen=True)
class Unit:
    """How a metric is written."""

    name: str
    factor: float
    sign: str
    difference: str
    decimals: int  # at least

    def value(self, value: float, interval: Interval | None = None) -> str:
        digits = self._digits(value, *(interval or ()))
        return f"{_number(value * self.factor, digits)}{self.sign} {self.name}"

    def span(self, interval: Interval, *beside: float) -> str:
        """Both ends, with as many decimals as the figures beside them."""
        digits = self._digits(*interval, *beside)
        return " to ".join(_number(end * self.factor, digits) for end in interval)

    def amount(self, value: float, interval: Interval) -> str:
        digits = self._digits(value, *interval)
        return f"{_number(value * self.factor, digits)}{self.difference}"

    def _digits(self, *values: float) -> int:
        """The fewest decimals that show what is not zero as not zero."""
        shown = [abs(value) * self.factor for value in values if value]
        enough = (d for d in range(self.decimals, self.decimals + 4) if all(round(v, d) for v in shown))
        return next(enough, self.decimals + 4)


UNITS = {  # of every metric that can be the first objective
    "validation_error": Unit("validation error", 100, " %", " points", 1),
    "test_error": Unit("test error", 100, " %", " points", 1),
    "validation_loss": Unit("validation loss", 1, "", "", 3),
}


def figure(unit: Unit, mean: float, interval: Interval | None, n: int) -> str:
    """A mean with its interval and its number of runs."""
    said = unit.value(mean, interval)
    if interval is None:
        return f"{said} (n = {n}: no interval can be given)"
    low, high = interval
    possible = (max(low, 0.0), high)  # errors and losses are not below 0, whatever a t-interval says
    return f"{said} (95 % {unit.span(possible, mean)}, n = {n})"


def against(unit: Unit, difference: Difference, other: str) -> str:
    """How far below or above another config, the ends of the interval in the same direction."""
    below = difference.mean < 0
    low, high = difference.interval
    interval = (-high, -low) if below else (low, high)
    where = "below" if below else "above" if difference.mean > 0 else "from"
    amount = unit.amount(abs(difference.mean), interval)
    return f"{amount} ({unit.span(interval, difference.mean)}) {where} {other}"


def verdict(difference: Difference, direction: Literal["minimize", "maximize"]) -> bool | None:
    """True or False where the interval lies wholly on the better or the worse side; None where it has 0."""
    low, high = difference.interval
    if low <= 0 <= high:
        return None
    return (high < 0) == (direction == "minimize")


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")
    return text.replace("-", "−")
