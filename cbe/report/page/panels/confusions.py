"""Confusion matrices side by side, each row as shares of its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import NAMES, Panel

_KINDS = {"validation": "validation", "pseudo": "pseudo-labels"}
_LEGIBLE = 20  # classes whose shares are told as numbers, and whose ticks are

Matrix = Sequence[Sequence[float]]


def confusions(evidence: Evidence) -> Panel | None:
    cells: list[tuple[str, list[list[float | None]], int]] = []
    for kind, title in _KINDS.items():
        for part, each in evidence.chosen.items():
            found = [evidence.confusions.get(trial, {}).get(kind) for trial in each.trials]
            matrices = [matrix for matrix in found if matrix]
            if matrices and len({len(matrix) for matrix in matrices}) == 1:
                cells.append((f"{title}<br>{NAMES[part]}", _shares(matrices), len(matrices)))
    if not cells:
        return None
    columns = min(len(evidence.chosen), len(cells))
    data, layout = [], _layout(len(cells), columns)
    for place, (title, shares, n) in enumerate(cells, start=1):
        at = str(place) if place > 1 else ""
        data.append(
            _heatmap(shares) | {"xaxis": f"x{at}", "yaxis": f"y{at}", "name": title.replace("<br>", ": ")}
        )
        layout[f"xaxis{at}"] = _axis(len(shares), "predicted", constrain="domain")
        layout[f"yaxis{at}"] = _axis(
            len(shares), "true", autorange="reversed", scaleanchor=f"x{at}", constrain="domain"
        )
        layout["annotations"].append(_title(f"{title} (n = {n})", at))
    note = "At the last evaluation. Rows are true classes and sum to 100 %; a config's runs are added up."
    return Panel("confusions", "Confusion matrices", note, {"data": data, "layout": layout})


def _shares(matrices: Sequence[Matrix]) -> list[list[float | None]]:
    """The sum of the matrices with each row as shares; a class that never occurred has none."""
    size = range(len(matrices[0]))
    total = [[sum(matrix[row][column] for matrix in matrices) for column in size] for row in size]
    return [[round(100 * value / sum(row), 3) if sum(row) else None for value in row] for row in total]


def _heatmap(shares: list[list[float | None]]) -> dict[str, Any]:
    return {
        **{"type": "heatmap", "z": shares, "zmin": 0, "zmax": 100, "coloraxis": "coloraxis"},
        **{"xgap": 1 if len(shares) <= _LEGIBLE else 0, "ygap": 1 if len(shares) <= _LEGIBLE else 0},
        "hovertemplate": "true %{y}, predicted %{x}: %{z:.1f} %<extra></extra>",
        "hoverongaps": False,
    }


def _axis(classes: int, title: str, **more: Any) -> dict[str, Any]:
    ticks = {"dtick": 1} if classes <= _LEGIBLE else {"nticks": 6}
    return {"title": {"text": title}, "showgrid": False, "zeroline": False, **ticks, **more}


def _title(text: str, at: str) -> dict[str, Any]:
    return {
        **{
            "text": text,
            "xref": f"x{at} domain",
            "yref": f"y{at} domain",
            "x": 0,
            "y": 1.02,
            "align": "left",
        },
        **{"xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"size": 13}},
    }


def _layout(cells: int, columns: int) -> dict[str, Any]:
    rows = -(-cells // columns)
    return {
        "height": 300 * rows,
        "grid": {"rows": rows, "columns": columns, "pattern": "independent", "ygap": 0.3},
        "meta": {"cells": cells, "width": 215, "between": 90, "most": columns},
        "margin": {"t": 46},  # titles are two lines
        "annotations": [],
        # Errors are a few per cent beside a diagonal of nearly all: most of the scale is spent on them.
        "coloraxis": {
            **{"cmin": 0, "cmax": 100, "colorbar": {"title": {"text": "%"}, "thickness": 10, "len": 0.6}},
            "colorscale": [
                [place, f"var(--heat-{n})"] for n, place in enumerate((0, 0.04, 0.2, 0.6, 1), start=1)
            ],
        },
    }
