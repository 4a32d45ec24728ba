"""The page's tables and facts, as texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cbe.configs import is_finite
from cbe.report.best import Answer, Ranked
from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.numbers import usd
from cbe.report.page.panel import shown
from cbe.report.paired import Difference
from cbe.spec import Parameter
from cbe.store.rows import Row
from cbe.store.states import TRIAL_STATES
from cbe.words import NOTHING, duration, figure, number, point

_MOST_TEXT = 600  # characters of an error


@dataclass(frozen=True)
class Gap:
    """A paired difference; only a dash where there is none, and no verdict before a confirmation."""

    mean: str
    interval: str
    verdict: str


@dataclass(frozen=True)
class RankedConfig:
    """A line of the ranking."""

    rank: int | None
    name: str
    config_id: str
    part: str  # chosen, paper, base or none of them
    n: int
    mean: str
    interval: str
    base: Gap
    paper: Gap
    searched: str
    test: str
    yaml: str


@dataclass(frozen=True)
class TrialLine:
    """A line of the table of trials; `keys` are what its columns are sorted by."""

    trial: str
    role: str
    state: str
    config: str
    config_id: str
    point: str
    step: str
    objective: str
    test: str
    wall: str
    cost: str
    reused_from: str  # STUDY/TRIAL, or nothing
    error_class: str
    error_text: str
    keys: dict[str, float | str]


@dataclass(frozen=True)
class Spent:
    """What the trials of one state took."""

    state: str
    trials: int
    wall: str
    share: float  # of all wall time, in per cent
    gpu: str
    cost: str


def ranking(evidence: Evidence) -> list[RankedConfig]:
    answer = evidence.answer
    parts = {each.config_id: part for part, each in evidence.chosen.items()}
    return [
        RankedConfig(
            rank=each.rank,
            name=each.name,
            config_id=each.config_id,
            part=parts.get(each.config_id, ""),
            n=each.n,
            mean=number(answer.metric, each.mean),
            interval=_interval(answer.metric, each),
            base=_gap(answer, each.versus_base, each.verdict),
            paper=_gap(answer, each.versus_paper),
            searched=number(answer.metric, each.searched),
            test=number("test_error", each.test_error),
            yaml=answer.to_yaml(each),
        )
        for each in (answer.ranked if answer else ())
        if answer
    ]


def _interval(metric: str, ranked: Ranked) -> str:
    if ranked.interval is None:
        return "no interval can be given"
    low, high = ranked.interval
    return f"{number(metric, low)} to {number(metric, high)}".replace(" ", "\u00a0")


def _gap(answer: Answer, found: Difference | None, verdict: str | None = None) -> Gap:
    if found is None:
        return Gap(NOTHING, "", "")
    mean, low, high = (number(answer.metric, each, sign=True) for each in (found.mean, *found.interval))
    return Gap(mean, f"{low} to {high}", verdict or "")


def searched(evidence: Evidence) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """The ranked configs' names, and for every searched key its space and each config's value."""
    ranked = [each for each in (evidence.answer.ranked if evidence.answer else ()) if each.point]
    rows = [
        (key, _space(parameter), [shown(each.point.get(key, NOTHING)) for each in ranked])
        for key, parameter in evidence.study.search.items()
    ]
    return [each.name for each in ranked], rows


def _space(parameter: Parameter) -> str:
    joint = " · " if parameter.scale == "category" else " to "
    said = joint.join(map(shown, parameter.listed)) + (", log" if parameter.scale == "log" else "")
    when = "; ".join(f"{key} = {' or '.join(map(shown, values))}" for key, values in parameter.when.items())
    return f"{said} (where {when})" if when else said


def trials(evidence: Evidence) -> list[TrialLine]:
    return [_line(evidence, row) for row in evidence.rows]


def _line(evidence: Evidence, row: Row) -> TrialLine:
    metric, error = evidence.objective.metric, row["error_text"] or ""
    values = {"step": row["step"], "objective": row["objective"], "test": row["last_test_error"]}
    values |= {"wall": row["wall_s"], "cost": row["cost_usd"]}
    return TrialLine(
        trial=row["trial"],
        role=f"{row['role']}, {row['preset']}" if row["preset"] else str(row["role"] or NOTHING),
        state=str(row["state"]),
        config=evidence.name(row) or NOTHING,
        config_id=row["config_id"] or "",
        point=point(point_of(row)),
        step=f"{row['step'] or 0:,}/{row['steps']:,}" if row["steps"] else NOTHING,
        objective=number(metric, row["objective"]),
        test=number("test_error", row["last_test_error"]),
        wall=duration(row["wall_s"]),
        cost=usd(row["cost_usd"]),
        reused_from=row["reused_from"] or "",
        error_class=row["error_class"] or "",
        error_text=error if len(error) <= _MOST_TEXT else f"{error[:_MOST_TEXT]} …",
        keys={name: value for name, value in values.items() if is_finite(value)},
    )


def spent(evidence: Evidence) -> list[Spent]:
    """By state, and of all together as the last."""
    whole = total(evidence.rows, "wall_s")
    states = [state for state in TRIAL_STATES if evidence.counts[state]]
    groups = [(state, [row for row in evidence.rows if row["state"] == state]) for state in states]
    return [
        Spent(
            state=name,
            trials=len(rows),
            wall=duration(total(rows, "wall_s")),
            share=round(100 * total(rows, "wall_s") / whole, 1) if whole else 0.0,
            gpu=f"{hours:,.2f}" if (hours := total(rows, "gpu_s") / 3600) else NOTHING,
            cost=usd(total(rows, "cost_usd")),
        )
        for name, rows in [*groups, ("all", list(evidence.rows))]
    ]


def total(rows: Iterable[Row], column: str) -> float:
    return float(sum(row[column] for row in rows if is_finite(row[column])))


def searched_best(evidence: Evidence) -> str:
    """The best of the search at its last evaluation, for a study in which no trial has completed yet."""
    valued = [row for row in evidence.search if is_finite(row["objective"])]
    if not valued:
        return ""
    better = min if evidence.objective.direction == "minimize" else max
    best = better(valued, key=lambda row: row["objective"])
    value = figure(evidence.objective.metric, best["objective"])
    at = f"at step {best['step'] or 0:,} of {best['steps']:,}" if best["steps"] else "at its last evaluation"
    return f"{best['trial']} ({best['state']}) leads {at} with {value}."
