"""The page's tables and facts, as texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cbe import __version__
from cbe.configs import is_finite
from cbe.report.best import Answer, Ranked
from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.numbers import usd
from cbe.report.page.panel import shown
from cbe.report.paired import Difference
from cbe.report.published import data_name, labels
from cbe.spec import Parameter, StudyConfig
from cbe.spec.metrics import METRICS
from cbe.store.rows import Row, pair_of
from cbe.store.states import TRIAL_STATES
from cbe.words import NOTHING, duration, figure, number, plural, point

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
    whole = _sum(evidence.rows, "wall_s")
    states = [state for state in TRIAL_STATES if evidence.counts[state]]
    groups = [(state, [row for row in evidence.rows if row["state"] == state]) for state in states]
    return [
        Spent(
            state=name,
            trials=len(rows),
            wall=duration(_sum(rows, "wall_s")),
            share=round(100 * _sum(rows, "wall_s") / whole, 1) if whole else 0.0,
            gpu=f"{hours:,.2f}" if (hours := _sum(rows, "gpu_s") / 3600) else NOTHING,
            cost=usd(_sum(rows, "cost_usd")),
        )
        for name, rows in [*groups, ("all", list(evidence.rows))]
    ]


def _sum(rows: Iterable[Row], column: str) -> float:
    return float(sum(row[column] for row in rows if is_finite(row[column])))


def facts(evidence: Evidence) -> list[tuple[str, str]]:
    """The study in a few words each."""
    study, rows = evidence.study, evidence.rows
    by_state = " · ".join(f"{n:,} {state}" for state in TRIAL_STATES if (n := evidence.counts[state]))
    data = f"{data_name(study.data)} with {labels(study.data)} labels"
    found = [
        ("Trials", by_state),
        (
            "Objective",
            ", ".join(f"{each.direction} {METRICS[each.metric].title}" for each in study.objectives),
        ),
        ("Time", _time(evidence) if rows else ""),
        ("Cost", _cost(rows) if rows else ""),
        ("Searched on", _pairs(row for row in rows if row["role"] == "search")),
        ("Confirmed on", _pairs(row for row in rows if row["role"] == "confirm")),
        ("Data", evidence.data.sentence),
        ("Trains", f"{study.method.name}, {study.model.name}, {study.training.steps:,} steps, {data}"),
        ("Searched by", f"{study.sampler.name}, scheduler {study.scheduler.name}"),
        ("Searched from", _earlier(study)),
    ]
    return [(name, text) for name, text in found if text]


def _earlier(study: StudyConfig) -> str:
    if study.search_from == "auto":
        return "all comparable studies that the store held at the start"
    return ", ".join(study.search_from)


def about(evidence: Evidence) -> str:
    """The study in one line."""
    study = evidence.study
    trials = f", {plural(len(evidence.rows), 'trial')}" if evidence.rows else ""
    return f"{data_name(study.data)} with {labels(study.data)} labels, {study.method.name}{trials}"


def _time(evidence: Evidence) -> str:
    total = f"{duration(_sum(evidence.rows, 'wall_s'))} in trials"
    elapsed = evidence.progress.elapsed_s
    return f"{total}, {duration(elapsed)} by the clock" if elapsed else total


def _cost(rows: Sequence[Row]) -> str:
    price, gpu_hours = usd(_sum(rows, "cost_usd")), _sum(rows, "gpu_s") / 3600
    return f"{price}, {gpu_hours:,.2f} GPU hours" if gpu_hours else price


def _pairs(rows: Iterable[Row]) -> str:
    pairs = {pair_of(row) for row in rows if row["seed"] is not None}
    if not pairs:
        return ""
    seeds, splits = (sorted({pair[at] for pair in pairs}) for at in (0, 1))
    return f"{_few('seed', seeds)}; {_few('label split', splits)}"


def _few(noun: str, values: Sequence[int]) -> str:
    if len(values) > 8:
        return plural(len(values), noun)
    return f"{noun if len(values) == 1 else noun + 's'} {', '.join(map(str, values))}"


def banner(evidence: Evidence) -> str:
    """What a reader must know before all else; empty for a finished study."""
    progress, at = evidence.progress, moment(evidence.read)
    if evidence.finished:
        return ""
    if progress.state == "running":
        under_way, paused = plural(evidence.counts["running"], "trial"), evidence.counts["paused"]
        more = f" and {paused:,} paused" if paused else ""
        return f"Running: {under_way} under way{more} as of {at}. All figures may still change."
    if progress.state == "interrupted" and not progress.why:  # its driver was killed
        return f"Not finished as of {at}: its driver last reported at {moment(progress.heard)}."
    why = f" ({progress.why})" if progress.why else ""
    said = {"stopped": "stopped before its end", "interrupted": "interrupted"}.get(progress.state)
    return f"Not finished as of {at}{f': {said}{why}' if said else ''}."


def moment(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else NOTHING


def provenance(evidence: Evidence) -> list[tuple[str, str]]:
    """With what, where and when."""
    rows = evidence.rows
    begun = min((row["started"] for row in rows if row["started"]), default=None)
    updated = max((row["updated"] for row in rows if row["updated"]), default=None)
    versions: dict[str, set[str]] = {}
    for text in {row["versions"] for row in rows if row["versions"]}:
        for package, version in json.loads(text).items():
            versions.setdefault(package, set()).add(str(version))
    found: list[tuple[str, str]] = [
        ("First trial", moment(begun)),
        ("Last update", moment(updated)),
        ("Report made", f"{moment(evidence.read)}, by cbe {__version__}"),
        ("Versions", ", ".join(f"{name} {' and '.join(sorted(all_))}" for name, all_ in versions.items())),
        ("Git commit", _distinct(rows, "git_commit")),
        ("Devices", _distinct(rows, "device")),
        ("Nodes", _distinct(rows, "node")),
    ]
    return [(name, text) for name, text in found if text]


def _distinct(rows: Sequence[Row], column: str) -> str:
    times: Counter[Any] = Counter(row[column] for row in rows if row[column])
    if len(times) < 2:
        return ", ".join(times)
    few = ", ".join(f"{name} ({plural(n, 'trial')})" for name, n in times.most_common(8))
    return f"{few} and {len(times) - 8} more" if len(times) > 8 else few


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
