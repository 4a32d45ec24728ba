"""Figures in words that claim no more than their interval."""

from __future__ import annotations

from cbe.report.intervals import Interval
from cbe.report.paired import Difference
from cbe.spec import StudyConfig
from cbe.spec.metrics import METRICS
from cbe.spec.terms import Direction, Role
from cbe.verdicts import MOST_PAIRS, Verdict

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


def value(metric: str, mean: float) -> str:
    """A mean and what it is of.

    >>> value("validation_error", 0.05)
    '5.0 % validation error'
    """
    about = METRICS[metric]
    sign = f" {about.unit.sign}" if about.unit.sign else ""
    return f"{_number(mean * about.unit.factor, _digits(metric, mean))}{sign} {about.title}"


def figure(metric: str, mean: float, interval: Interval | None, n: int) -> str:
    """A mean with its interval and its number of runs."""
    said = value(metric, mean)
    if interval is None:
        return f"{said} (n = {n}: no interval can be given)"
    return f"{said} (95 % {_span(metric, interval, _digits(metric, mean))}, n = {n})"


def amount(metric: str, difference: float, digits: int | None = None) -> str:
    """The distance of two means."""
    unit, distance = METRICS[metric].unit, abs(difference)
    said = _number(distance * unit.factor, _digits(metric, distance) if digits is None else digits)
    return f"{said} {unit.difference}" if unit.difference else said


def capitalized(text: str) -> str:
    """A text that begins a sentence.

    >>> capitalized("the base has it"), capitalized("t0007 has it")
    ('The base has it', 't0007 has it')
    """
    return text[:1].upper() + text[1:] if text.startswith("the ") else text


def against(metric: str, difference: Difference, other: str) -> str:
    """How far below or above another config, the ends of the interval in the same direction."""
    below = difference.mean < 0
    low, high = difference.interval
    interval = (-high, -low) if below else (low, high)
    where = "below" if below else "above" if difference.mean > 0 else "from"
    digits = _digits(metric, difference.mean, *interval)  # an end on one side of 0 is not shown as 0
    return f"{amount(metric, difference.mean, digits)} ({_span(metric, interval, digits)}) {where} {other}"


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
    return study.confirm.margin or METRICS[study.objectives[0].metric].margin or ""


def verdict(difference: Difference, direction: Direction) -> bool | None:
    """True or False where the interval lies wholly on the better or the worse side; None where it has 0."""
    low, high = difference.interval
    if low <= 0 <= high:
        return None
    return (high < 0) == (direction == "minimize")


def _span(metric: str, interval: Interval, digits: int) -> str:
    return " to ".join(_number(end * METRICS[metric].unit.factor, digits) for end in interval)


def _digits(metric: str, *values: float) -> int:
    """The fewest decimals that show what is not zero as not zero."""
    unit = METRICS[metric].unit
    shown = [abs(value) * unit.factor for value in values if value]
    least, most = unit.least_decimals, unit.least_decimals + 4
    return next((d for d in range(least, most) if all(round(v, d) for v in shown)), most)


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")
    return text.replace("-", "−")
