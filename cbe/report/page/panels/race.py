"""Who ran how long on which seed and label split, and where the scheduler stopped them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbe.configs import grouped, in_order, is_finite, ranking_role
from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import ACCENT, FAINT, MUTED, SERIES, Panel, escape, legend, scaled
from cbe.report.page.panels.hover import about
from cbe.spec import StudyConfig
from cbe.spec.metrics import METRICS
from cbe.spec.terms import Pair, Role
from cbe.store.rows import Row, pair_of
from cbe.words import plural

MOST_ROWS = 40
_STOPPING = ("race", "asha", "hyperband", "median")  # schedulers that end trials early
_OUTCOMES: Mapping[str, tuple[str, dict[str, Any]]] = {  # of a state: its name, its look
    "completed": ("completed", {"color": ACCENT}),
    "pruned": ("stopped by the scheduler", {"color": MUTED}),
    "running": ("running", {"color": SERIES[4], "pattern": {"shape": "/", "solidity": 0.35}}),
    "paused": ("paused at a rung", {"color": SERIES[4], "pattern": {"shape": ".", "solidity": 0.35}}),
    "interrupted": ("interrupted", {"color": SERIES[3], "pattern": {"shape": "/", "solidity": 0.35}}),
    "failed": ("failed", {"color": "var(--bad)"}),
}
_MARKS = {"chosen": "◆", "paper": "■", "base": "▲"}
_BAR = 0.94  # of a column


@dataclass(frozen=True)
class Column:
    """A pair of seed and label split, in one of the two parts of a study, and its place on the axis."""

    role: Role
    pair: Pair
    start: float
    width: float

    def at(self, share: float) -> float:
        """Where a share of a training's steps stands."""
        return self.start + _BAR * self.width * share


def race(evidence: Evidence) -> Panel | None:
    rows = [row for row in evidence.rows if row["config_id"] and row["steps"] and row["state"] in _OUTCOMES]
    if evidence.study.scheduler.name not in _STOPPING or not any(is_finite(r["objective"]) for r in rows):
        return None
    order = _order(evidence, rows)
    shown = _shown(rows, order)
    columns = _columns(evidence.study, rows)
    labels = {config_id: _label(evidence, order[config_id]) for config_id in shown}
    drawn = [row for row in rows if row["config_id"] in labels]
    traces = [_bars(evidence, state, drawn, columns, labels) for state in _OUTCOMES]
    traces.append(_failures(evidence, drawn, columns, labels))
    rungs = _rungs(evidence.study)
    layout = {
        **_axes(columns, list(labels.values())),
        **{"shapes": _lines(columns, evidence.study, rungs), "annotations": _parts(columns)},
        **{"height": 130 + 21 * len(labels), "barmode": "overlay", "bargap": 0.3, "legend": legend()},
        **{"hovermode": "closest", "margin": {"b": 66}, "meta": {"least": _least(columns)}},
    }
    figure = {"data": [trace for trace in traces if trace["y"]], "layout": layout}
    return Panel("race", "The race", _note(evidence, rows, rungs, len(order) - len(shown)), figure)


def _note(evidence: Evidence, rows: Sequence[Row], rungs: Sequence[int], hidden: int) -> str:
    said = "How long each config ran on each pair of seed and label split, the best config at the top."
    if rungs:
        steps = " and ".join(f"{step:,}" for step in rungs) if len(rungs) < 3 else f"{rungs[0]:,} and later"
        said += f" Dotted: where trials are compared, at step{'s' * (len(rungs) > 1)} {steps}"
        said += f" of {evidence.study.training.steps:,}."
    searched = [row for row in rows if row["role"] == "search"]
    stopped = sum(row["state"] == "pruned" for row in searched)
    said += f" The scheduler stopped {stopped:,} of {plural(len(searched), 'trial')}."
    marks = [f"{_MARKS[part]} {evidence.called(part)}" for part in evidence.chosen]
    said += f" {', '.join(marks)}." if marks else ""
    return said + (f" Left out: the last {plural(hidden, 'config')}." if hidden else "")


def _order(evidence: Evidence, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The trials of every config: those of the answer in its order, then the others, the farthest first."""
    of_config: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_config[row["config_id"]].append(row)
    configs, direction = grouped(evidence.rows, evidence.study), evidence.objective.direction
    decided = in_order(configs, ranking_role(configs, evidence.rows, evidence.study), direction)
    searched = in_order(configs, "search", direction)
    ranked = dict.fromkeys(config.config_id for config in (*decided, *searched))
    sign = 1 if direction == "minimize" else -1

    def reached(config_id: str) -> tuple[Any, ...]:
        own = of_config[config_id]
        last = own[-1]["objective"]
        steps = sum(row["step"] or 0 for row in own)
        return (-steps, not is_finite(last), sign * last if is_finite(last) else 0.0)

    others = sorted(of_config.keys() - ranked.keys(), key=reached)
    return {each: of_config[each] for each in (*ranked, *others) if each in of_config}


def _shown(rows: Sequence[Row], order: Iterable[str]) -> list[str]:
    """The first configs, and the presets wherever they stand."""
    fixed = {row["config_id"] for row in rows if row["preset"]}
    room = MOST_ROWS - len(fixed)
    kept = fixed.union([config_id for config_id in order if config_id not in fixed][:room])
    return [config_id for config_id in order if config_id in kept]


def _label(evidence: Evidence, rows: Sequence[Row]) -> str:
    """A config's name, with a mark where every figure has one."""
    part = evidence.part(rows[0]) or next((row["preset"] for row in rows if row["preset"]), None)
    name = escape(evidence.name(rows[0]))
    return f"{_MARKS[part]} {name}" if part in _MARKS else name


def _columns(study: StudyConfig, rows: Sequence[Row]) -> list[Column]:
    """The pairs that were used, in the order planned; the search has at least half of the width."""
    planned: dict[Role, Sequence[Pair]] = {"search": study.pairs, "confirm": study.confirm_pairs}
    used: dict[Role, list[Pair]] = {}
    for role, pairs in planned.items():
        seen = {pair_of(row) for row in rows if row["role"] == role}
        used[role] = [*(pair for pair in pairs if pair in seen), *sorted(seen - set(pairs))]
    wide = max(1.0, len(used["confirm"]) / max(1, len(used["search"])))
    columns: list[Column] = []
    start = 0.0
    for role, of_role in used.items():
        width = wide if role == "search" else 1.0
        for pair in of_role:
            columns.append(Column(role, pair, start, width))
            start += width
    return columns


def _bars(
    evidence: Evidence, state: str, rows: Sequence[Row], columns: Sequence[Column], labels: Mapping[str, str]
) -> dict[str, Any]:
    places = {(column.role, column.pair): column for column in columns}
    own = [row for row in rows if row["state"] == state]
    found = [places[row["role"], pair_of(row)] for row in own]
    name, look = _OUTCOMES[state]
    return {
        **{"type": "bar", "orientation": "h", "name": name, "marker": {**look, "line": {"width": 0}}},
        "y": [labels[row["config_id"]] for row in own],
        "base": [round(column.start, 4) for column in found],
        "x": [
            round(column.at(_share(row)) - column.start, 4) for row, column in zip(own, found, strict=True)
        ],
        **{"customdata": [row["trial"] for row in own], "text": [_hover(evidence, row) for row in own]},
        **{"hovertemplate": "%{text}<extra></extra>", "textposition": "none"},
    }


def _failures(
    evidence: Evidence, rows: Sequence[Row], columns: Sequence[Column], labels: Mapping[str, str]
) -> dict[str, Any]:
    """A cross where a trial failed, which may be before its first step."""
    places = {(column.role, column.pair): column for column in columns}
    own = [row for row in rows if row["state"] == "failed"]
    return {
        **{"type": "scatter", "mode": "markers", "name": "failed", "showlegend": False},
        "x": [round(places[row["role"], pair_of(row)].at(_share(row)), 4) for row in own],
        "y": [labels[row["config_id"]] for row in own],
        **{"customdata": [row["trial"] for row in own], "text": [_hover(evidence, row) for row in own]},
        "hovertemplate": "%{text}<extra></extra>",
        **{"cliponaxis": False},
        "marker": {"symbol": "x-thin", "size": 8, "line": {"width": 2, "color": "var(--bad)"}},
    }


def _share(row: Row) -> float:
    """How much of its training a trial has done."""
    return float(min(1.0, (row["step"] or 0) / row["steps"]))


def _hover(evidence: Evidence, row: Row) -> str:
    metric = evidence.objective.metric
    said = f"{about(evidence, row)}<br>seed {row['seed']}, label split {row['label_split']}"
    if is_finite(row["objective"]):
        (value,) = scaled(metric, [row["objective"]])
        said += f"<br><b>{value:.4g} {METRICS[metric].unit.sign}</b> {METRICS[metric].title}"
    return said


def _rungs(study: StudyConfig) -> tuple[int, ...]:
    """The steps at which trials are compared; of Hyperband, whose brackets differ, none."""
    scheduler, steps = study.scheduler, study.training.steps
    if scheduler.name == "race":
        return scheduler.rung_steps(study.training)
    grace = scheduler.grace_steps(study.training)
    if scheduler.name == "asha":
        found = [grace]
        while found[-1] * scheduler.reduction < steps:
            found.append(found[-1] * scheduler.reduction)
        return tuple(step for step in found if step < steps)
    return (grace,) if scheduler.name == "median" and grace < steps else ()


def _axes(columns: Sequence[Column], labels: Sequence[str]) -> dict[str, Any]:
    end = columns[-1].start + columns[-1].width
    return {
        "xaxis": {
            **{"range": [0, end], "showgrid": False, "tickmode": "array", "tickangle": 0, "fixedrange": True},
            "tickvals": [round(column.at(0.5), 4) for column in columns],
            "ticktext": [f"{column.pair[0]}/{column.pair[1]}" for column in columns],
        },
        "yaxis": {
            **{"type": "category", "categoryorder": "array", "categoryarray": list(labels)},
            **{"range": [len(labels) - 0.5, -0.5], "showgrid": False, "dtick": 1},
            "tickfont": {"size": 11},
        },
    }


def _lines(columns: Sequence[Column], study: StudyConfig, rungs: Sequence[int]) -> list[dict[str, Any]]:
    """Where columns begin, and the rungs of those of the search; in a race, of the first pair alone."""

    def line(x: float, dash: str, width: float) -> dict[str, Any]:
        return {
            **{"type": "line", "layer": "below", "yref": "paper", "y0": 0, "y1": 1},
            **{"x0": round(x, 4), "x1": round(x, 4), "line": {"color": FAINT, "width": width, "dash": dash}},
        }

    starts = [line(column.start, "solid", 1) for column in columns]
    judged = study.pairs[:1] if study.is_race else study.pairs
    searched = [column for column in columns if column.role == "search" and column.pair in judged]
    return starts + [
        line(column.at(rung / study.training.steps), "dot", 1.5) for column in searched for rung in rungs
    ]


def _parts(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The two parts of the study, below the pairs they use."""
    names = {"search": "search: seed/split", "confirm": "confirmation: seed/split"}
    found = []
    for role, name in names.items():
        own = [column for column in columns if column.role == role]
        if own:
            middle = (own[0].start + own[-1].start + own[-1].width) / 2
            found.append(
                {
                    **{"text": name, "x": round(middle, 4), "xref": "x", "yref": "paper", "y": 0},
                    **{"yanchor": "top", "yshift": -26, "showarrow": False},
                }
            )
    return found


def _least(columns: Sequence[Column]) -> int:
    """The width in pixels below which the figure scrolls sideways."""
    searched = sum(column.role == "search" for column in columns)
    confirmed = len(columns) - searched
    return 120 + max(90 * searched, 42 * confirmed) + 42 * confirmed
