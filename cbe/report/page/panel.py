"""A panel: a figure in plotly's JSON, and what the panels have in common.

Colours are names of the page's style, as `var(--chosen)`: the page puts in those of its theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from cbe.report.page.numbers import axis_title
from cbe.spec import Parameter
from cbe.spec.metrics import METRICS, PERCENT
from cbe.spec.terms import PRESETS

Figure = dict[str, Any]

COLOURS = {part: f"var(--{part})" for part in ("chosen", *PRESETS)}
BANDS = {part: f"var(--{part}-band)" for part in COLOURS}
NAMES = {"chosen": "best searched", "paper": "paper", "base": "base"}
DASHES = {"chosen": "solid", "paper": "dash", "base": "dot"}  # told apart without colour, too
MARKS = {"chosen": "diamond", "paper": "square", "base": "triangle-up"}
FAINT, MUTED, ACCENT = "var(--faint)", "var(--muted)", "var(--accent)"
THREAD = "var(--thread)"  # a line among hundreds
SERIES = tuple(f"var(--series-{number})" for number in range(1, 7))


@dataclass(frozen=True)
class Panel:
    """One figure, its heading and what a reader should know of it; without a figure, why there is none."""

    id: str
    title: str
    note: str
    figure: Figure | None

    def to_plain(self) -> dict[str, Any]:
        return {"id": self.id, "title": self.title, "note": self.note, "figure": self.figure}


def scaled(metric: str, values: Sequence[float | None]) -> list[float | None]:
    """Values in the unit of their axis."""
    factor = METRICS[metric].unit.factor
    return [None if value is None else round(value * factor, 6) for value in values]


def value_axis(metric: str, **more: Any) -> dict[str, Any]:
    """From 0; one in per cent ends at 100, with room for half a mark."""
    share = {"autorangeoptions": {"clipmax": 103}} if METRICS[metric].unit is PERCENT else {}
    return {"title": {"text": axis_title(metric)}, "rangemode": "tozero", **share, **more}


def step_axis(**more: Any) -> dict[str, Any]:
    return {"title": {"text": "step"}, "rangemode": "tozero", **more}


def parameter_axis(key: str, parameter: Parameter, **more: Any) -> dict[str, Any]:
    """An axis as the parameter is searched: logarithmic, or one place a choice."""
    axis: dict[str, Any] = {"title": {"text": key}}
    if parameter.scale == "category":
        names = [shown(value) for value in parameter.listed]
        axis |= {"type": "category", "categoryorder": "array", "categoryarray": names}
        axis |= {"range": [-0.5, len(names) - 0.5]}
    elif parameter.scale == "log":
        ends = log10(parameter.listed[0]), log10(parameter.listed[-1])
        axis |= {"type": "log", "range": _wider(*ends), "tickvals": _ticks(*ends), "tickformat": "~g"}
    else:
        axis |= {"range": _wider(parameter.listed[0], parameter.listed[-1])}
    return axis | more


def _wider(low: float, high: float) -> list[float]:
    """A little room on either side, so that marks at the ends are whole."""
    room = 0.05 * (high - low)
    return [low - room, high + room]


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten, and 2 and 5 times them where there are few; all given as logarithms' ends."""
    powers = range(floor(low), ceil(high) + 1)
    every = max(1, round((high - low) / 5))
    wanted = (1, 2, 5) if high - low < 1.5 else (1,)
    found = [float(f"{digit}e{power}") for power in powers[::every] for digit in wanted]
    return [value for value in found if low - 1e-9 <= log10(value) <= high + 1e-9]


def shown(value: Any) -> str:
    """A value of a parameter as a file would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def placed(parameter: Parameter, value: Any) -> Any:
    """Where a value stands on its axis."""
    return shown(value) if parameter.scale == "category" else value


def legend(**more: Any) -> dict[str, Any]:
    """Above the figure, so that it takes none of its width."""
    return {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", **more}


def escape(text: object) -> str:
    """A text as plotly's labels show it: they read a few tags."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def band(
    part: Mapping[str, Any], x: Sequence[int], low: Sequence[Any], high: Sequence[Any], fill: str
) -> dict[str, Any]:
    """The area between the lowest and the highest run."""
    return {
        **{"type": "scatter", "mode": "lines", "x": [*x, *reversed(x)], "y": [*high, *reversed(low)]},
        **{"fill": "toself", "fillcolor": fill, "line": {"width": 0}, "hoverinfo": "skip"},
        **{"showlegend": False, **part},
    }
