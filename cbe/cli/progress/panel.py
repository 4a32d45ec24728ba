"""A study as a panel that fits a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cbe.cli.progress.leader import leading, upcoming
from cbe.spec.terms import Role
from cbe.study.progress_view import Shown, done
from cbe.words import clean, counts, duration, figure, first_line, point, span

Lines = Iterator[tuple[str, RenderableType]]  # a label and what stands beside it

_OTHER_LINES = 20  # that the panel may have beside the running trials


def panel(shown: Shown, width: int, height: int, advice: Iterable[Text] = ()) -> Panel:
    """All that is known; of many running trials only as many as fit into the height."""
    lines = Table.grid(padding=(0, 1))
    lines.add_column(style="dim")
    trials = _trials(shown, max(3, height - _OTHER_LINES))
    for label, beside in chain(_stages(shown), trials, _best(shown), _pace(shown), _failures(shown)):
        lines.add_row(label, beside)
    heading = Text(clean(shown.question), "italic")
    parts: list[RenderableType] = [*([heading] if heading else []), lines, *_problem(shown), *advice]
    title = Text(f"{shown.name} · {shown.stage}", "bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width)


def _stages(shown: Shown) -> Lines:
    totals: dict[Role, int] = {"search": shown.trials, "confirm": shown.confirm_total}
    for role, total in totals.items():
        if total:
            ended = done(shown, role)
            most = " at most" if role == "confirm" and shown.searching else ""
            bar = Table.grid(padding=(0, 1))
            bar.add_row(ProgressBar(total, ended, width=40), f"{ended}/{total}{most}")
            yield role, bar


def _trials(shown: Shown, most: int) -> Lines:
    yield "trials", counts(Counter(row["state"] for row in shown.rows())) or "none has started"
    running, metric = shown.rows(state="running"), shown.metric
    if not running:
        yield from (("", Text(first_line(line))) for line in shown.said[-1:])
        return
    rows = Table.grid(padding=(0, 1))
    for row in running[:most]:
        step, steps = row["step"] or 0, row["steps"]
        value = "" if row["objective"] is None else f"{_named(metric)} {figure(metric, row['objective'])}"
        rows.add_row(row["trial"], ProgressBar(steps, step, width=20), f"{step:,}/{steps:,}", value)
    if len(running) > most:
        rows.add_row("…", f"and {len(running) - most} more")
    yield "", rows


def _best(shown: Shown) -> Lines:
    first = shown.leader
    if first is not None:
        yield (
            "result" if shown.stage == "finished" else "so far",
            Text(leading(first, shown.metric), "bold green"),
        )
        unlike = {} if first.preset else _unlike_the_paper(shown, first.params)
        if unlike:
            yield "", Text(clean(point(unlike)))
    if ahead := upcoming(shown):
        yield "to come", Text(ahead)


def _unlike_the_paper(shown: Shown, params: str | None) -> dict[str, Any]:
    found = (each["params"] for each in shown.rows("search") if each["preset"] == "paper")
    paper, own = (json.loads(each or "{}") for each in (next(found, None), params))
    return {key: value for key, value in own.items() if paper.get(key) != value}


def _pace(shown: Shown) -> Lines:
    elapsed_s, eta = shown.elapsed_s, shown.eta_s
    if elapsed_s is None:
        return
    parts = [f"{shown.steps_per_s or 0:.1f} steps/s", f"{duration(elapsed_s)} elapsed"]
    if eta and shown.stage in ("search", "confirm"):
        parts.append(f"{span(*eta)} left")
    yield "pace", " · ".join(parts)


def _failures(shown: Shown) -> Lines:
    failures = shown.rows(state="failed")
    if failures:
        by_class = Counter(clean(row["error_class"]) for row in failures)
        yield "failed", Text(", ".join(f"{kind} × {n}" for kind, n in by_class.items()), "red")
        last = failures[-1]
        text = f"{last['trial']}: {first_line(last['error_text'])}"
        yield "", Text(text, overflow="ellipsis", no_wrap=True)


def _problem(shown: Shown) -> Iterator[Text]:
    problem = shown.problem
    if problem:
        yield Text(f"Results cannot be written and are kept in memory: {clean(problem)}", "bold red")


def _named(metric: str) -> str:
    return metric.replace("_", " ")
