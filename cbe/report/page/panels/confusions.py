"""Confusion matrices side by side, each row as shares of its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import NAMES, Panel, escape

_KINDS = {"validation": "validation", "pseudo": "pseudo-labels"}
_LEGIBLE = 20  # classes whose names fit beside the matrix
_LONGEST = 12  # letters of a name on an axis; all of it is shown under the pointer

Matrix = Sequence[Sequence[float]]
Shares = list[list[float | None]]


def confusions(evidence: Evidence) -> Panel | None:
    cells: list[tuple[str, Shares, int]] = []
    for kind, title in _KINDS.items():
        for part, each in evidence.chosen.items():
            found = [evidence.confusions.get(trial, {}).get(kind) for trial in each.trials]
            # Where no true label is known, nothing was counted.
            matrices = [matrix for matrix in found if matrix and any(map(sum, matrix))]
            if matrices and len({len(matrix) for matrix in matrices}) == 1:
                cells.append((f"{title}<br>{NAMES[part]}", _shares(matrices), len(matrices)))
    if not cells:
        return None
    columns = min(len(evidence.chosen), len(cells))
    longest = max(len(_short(name)) for name in _names(evidence, len(cells[0][1])))
    data, layout = [], _layout(len(cells), columns, longest)
    for place, (title, shares, n) in enumerate(cells, start=1):
        at = str(place) if place > 1 else ""
        names = _names(evidence, len(shares))
        data.append(
            _heatmap(shares, names)
            | {"xaxis": f"x{at}", "yaxis": f"y{at}", "name": title.replace("<br>", ": ")}
        )
        layout[f"xaxis{at}"] = _axis(names, "predicted", constrain="domain")
        layout[f"yaxis{at}"] = _axis(
            names, "true", autorange="reversed", scaleanchor=f"x{at}", constrain="domain"
        )
        layout["annotations"].append(_title(f"{title} (n = {n})", at))
    note = "At the last evaluation, summed over a config's runs. Each row is a true class and sums to 100 %."
    if not any(title.startswith(_KINDS["pseudo"]) for title, *_ in cells):
        note += " Pseudo-labels have no matrix: the true labels of the unlabeled images are unknown."
    return Panel("confusions", "Confusion matrices", note, {"data": data, "layout": layout})


def _names(evidence: Evidence, classes: int) -> list[str]:
    """Of the classes; their numbers in a study that did not record them."""
    names = evidence.data.classes
    return list(names) if len(names) == classes else [str(n) for n in range(classes)]


def _shares(matrices: Sequence[Matrix]) -> Shares:
    """The sum of the matrices with each row as shares; a class that never occurred has none."""
    size = range(len(matrices[0]))
    total = [[sum(matrix[row][column] for matrix in matrices) for column in size] for row in size]
    return [[round(100 * value / sum(row), 3) if sum(row) else None for value in row] for row in total]


def _heatmap(shares: Shares, names: Sequence[str]) -> dict[str, Any]:
    gap = 1 if len(shares) <= _LEGIBLE else 0
    names = [escape(name) for name in names]
    return {
        **{"type": "heatmap", "x": names, "y": names, "z": shares, "zmin": 0, "zmax": 100},
        **{"coloraxis": "coloraxis", "xgap": gap, "ygap": gap},
        "hovertemplate": "true %{y}, predicted %{x}: %{z:.1f} %<extra></extra>",
        "hoverongaps": False,
    }


def _axis(names: Sequence[str], title: str, **more: Any) -> dict[str, Any]:
    """One place a class; of many classes some are named."""
    every = -(-len(names) // _LEGIBLE)
    shown = list(range(0, len(names), every))
    upright = {"tickangle": -90} if title == "predicted" and max(map(len, names)) > 2 else {}
    ticks = {
        "type": "category",
        **upright,
        "tickvals": shown,
        "ticktext": [_short(names[at]) for at in shown],
    }
    return {"title": {"text": title}, "showgrid": False, "zeroline": False, **ticks, **more}


def _short(name: str) -> str:
    return escape(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")


def _title(text: str, at: str) -> dict[str, Any]:
    return {
        **{"text": text, "xref": f"x{at} domain", "yref": f"y{at} domain", "x": 0, "y": 1.02},
        **{"align": "left", "xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"size": 13}},
    }


def _layout(cells: int, columns: int, longest: int) -> dict[str, Any]:
    """Names of classes take their length beside the matrix, and upright below it."""
    length = 0 if longest <= 2 else 7 * longest
    rows = -(-cells // columns)
    return {
        "height": (300 + length) * rows,
        "grid": {"rows": rows, "columns": columns, "pattern": "independent", "ygap": 0.3},
        "meta": {
            "cells": cells,
            "width": 215 + length,
            "between": 90 + length,
            "beside": length,
            "most": columns,
        },
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
