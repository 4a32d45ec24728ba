"""What the page says of a study in words: what it is, what it cost, and where it comes from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from cbe import __version__
from cbe.report.page.evidence import Evidence
from cbe.report.page.numbers import usd
from cbe.report.page.tables import total
from cbe.report.published import data_name, labels
from cbe.spec import StudyConfig
from cbe.spec.metrics import METRICS
from cbe.store.rows import Row, pair_of
from cbe.store.states import TRIAL_STATES
from cbe.words import NOTHING, duration, plural


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
    in_trials = f"{duration(total(evidence.rows, 'wall_s'))} in trials"
    elapsed = evidence.progress.elapsed_s
    return f"{in_trials}, {duration(elapsed)} by the clock" if elapsed else in_trials


def _cost(rows: Sequence[Row]) -> str:
    price, gpu_hours = usd(total(rows, "cost_usd")), total(rows, "gpu_s") / 3600
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
    if progress.state == "interrupted" and not progress.reason:  # its driver was killed
        return f"Not finished as of {at}: its driver last reported at {moment(progress.heard)}."
    reason = f" ({progress.reason})" if progress.reason else ""
    said = {"stopped": "stopped before its end", "interrupted": "interrupted"}.get(progress.state)
    return f"Not finished as of {at}{f': {said}{reason}' if said else ''}."


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
