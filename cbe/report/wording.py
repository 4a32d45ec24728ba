"""Figures in words that claim no more than their interval."""

from __future__ import annotations

from dataclasses import dataclass

from cbe.report.intervals import Interval
from cbe.report.paired import Difference
from cbe.spec import StudyConfig
from cbe.spec.settings import DEFAULT_MARGIN
from cbe.spec.terms import Direction, Role
from cbe.verdicts import MOST_PAIRS, Verdict


@dataclass(frozen=True)
class Unit:
    """How a metric is written."""

    name: str
    factor: float
    sign: str
    difference: str
    decimals: int  # at least

    def value(self, value: float) -> str:
        return f"{_number(value * self.factor, self.digits(value))}{self.sign} {self.name}"

    def span(self, interval: Interval, digits: int) -> str:
        return " to ".join(_number(end * self.factor, digits) for end in interval)

    def amount(self, value: float, digits: int) -> str:
        return f"{_number(value * self.factor, digits)}{self.difference}"

    def digits(self, *values: float) -> int:
        """The fewest decimals that show what is not zero as not zero."""
        shown = [abs(value) * self.factor for value in values if value]
        enough = (d for d in range(self.decimals, self.decimals + 4) if all(round(v, d) for v in shown))
        return next(enough, self.decimals + 4)


UNITS = {  # of every metric that can be the first objective
    "validation_error": Unit("validation error", 100, " %", " points", 1),
    "test_error": Unit("test error", 100, " %", " points", 1),
    "validation_loss": Unit("validation loss", 1, "", "", 3),
}


_CALLED = {"paper": "the paper's config", "base": "the base"}


def called(name: str) -> str:
    """A config in a sentence.

    >>> called("paper"), called("t0007")
    ("the paper's config", 't0007')
    """
    return _CALLED.get(name, name)


def leads(name: str, role: Role, value: str) -> str:
    """Which config ranks first, before there is a verdict on it."""
    return f"{name} leads the {'search' if role == 'search' else 'confirmation'} with {value}"


def figure(unit: Unit, mean: float, interval: Interval | None, n: int) -> str:
    """A mean with its interval and its number of runs."""
    said = unit.value(mean)
    if interval is None:
        return f"{said} (n = {n}: no interval can be given)"
    return f"{said} (95 % {unit.span(interval, unit.digits(mean))}, n = {n})"


def capitalized(text: str) -> str:
    """A text that begins a sentence.

    >>> capitalized("the base has it"), capitalized("t0007 has it")
    ('The base has it', 't0007 has it')
    """
    return text[:1].upper() + text[1:] if text.startswith("the ") else text


def against(unit: Unit, difference: Difference, other: str) -> str:
    """How far below or above another config, the ends of the interval in the same direction."""
    below = difference.mean < 0
    low, high = difference.interval
    interval = (-high, -low) if below else (low, high)
    where = "below" if below else "above" if difference.mean > 0 else "from"
    digits = unit.digits(difference.mean, *interval)  # an end on one side of 0 is not shown as 0
    return f"{unit.amount(abs(difference.mean), digits)} ({unit.span(interval, digits)}) {where} {other}"


def said_by(verdict: Verdict, study: StudyConfig) -> str:
    """A verdict in words, with how many pairs it took or would take."""
    most = len(study.confirm_pairs)
    if verdict.said == "undecided":
        said = f"undecided after {verdict.n} of at most {most} pairs"
        if verdict.pairs_needed:
            return f"{said}; a difference of this size takes about {verdict.pairs_needed}"
        return f"{said}; a difference of this size takes more than {MOST_PAIRS:,}"
    words = f"equivalent within {margin_of(study)}" if verdict.said == "equivalent" else verdict.said
    return f"{words}, decided after {verdict.n} of at most {most} pairs"


def margin_of(study: StudyConfig) -> str:
    """The margin of equivalence as a person writes it."""
    return study.confirm.margin or DEFAULT_MARGIN[study.objectives[0].metric]


def verdict(difference: Difference, direction: Direction) -> bool | None:
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
