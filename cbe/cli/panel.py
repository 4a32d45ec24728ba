"""A running study as a panel that fits a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cbe.cli.stores import again
from cbe.study.overview import ENDED
from cbe.words import clean, counts, duration, figure, first_line, point, span

if TYPE_CHECKING:
    from cbe.study.progress import Progress

Lines = Iterator[tuple[str, RenderableType]]  # a label and what stands beside it

_OTHER_LINES = 20  # that the panel may have beside the running trials
_CALLED = {"paper": "the paper's config", "base": "the base"}


def panel(progress: Progress, width: int, height: int, *, over: bool = False) -> Panel:
    """All that is known; of many running trials only as many as fit into the height."""
    lines = Table.grid(padding=(0, 1))
    lines.add_column(style="dim")
    for part in (_stages, _best, _pace, _failures):
        for label, beside in part(progress):
            lines.add_row(label, beside)
        if part is _stages:
            lines.add_row("trials", counts(progress.counts) or "none has started")
            for beside in _running(progress, max(3, height - _OTHER_LINES)):
                lines.add_row("", beside)
    heading = Text(clean(progress.study.question), "italic")
    advice = () if over else _next(progress)
    parts = [*([heading] if heading else []), lines, *_problem(progress), *advice]
    title = Text(f"{progress.study.name} · {progress.stage}", "bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width)


def _stages(progress: Progress) -> Lines:
    for role, total in (("search", progress.study.trials), ("confirm", progress.confirm_total)):
        if total:
            done = sum(row["state"] in ENDED for row in progress.rows(role))
            most = " at most" if role == "confirm" and progress.agenda.stage == "search" else ""
            bar = Table.grid(padding=(0, 1))
            bar.add_row(ProgressBar(total, done, width=40), f"{done}/{total}{most}")
            yield role, bar


def _running(progress: Progress, most: int) -> Iterator[RenderableType]:
    running, metric = progress.running, progress.study.objectives[0].metric
    if not running:
        yield from (Text(first_line(line)) for line in progress.said[-1:])
        return
    rows = Table.grid(padding=(0, 1))
    for each in running[:most]:
        bar = ProgressBar(each.steps, each.step, width=20)
        value = "" if each.objective is None else f"{_named(metric)} {figure(metric, each.objective)}"
        rows.add_row(each.trial, bar, f"{each.step:,}/{each.steps:,}", value)
    if len(running) > most:
        rows.add_row("…", f"and {len(running) - most} more")
    yield rows


def _best(progress: Progress) -> Lines:
    best, metric = progress.best, progress.study.objectives[0].metric
    if best is None:
        return
    who = f"{best['trial']}, {_CALLED[best['preset']]}" if best["preset"] else best["trial"]
    so_far = "" if best["state"] == "completed" else f" at step {best['step']:,}"
    told = Text(figure(metric, best["objective"]), "bold green")
    yield "best", told.append(f" {_named(metric)}{so_far} ({who})", "not bold default")
    unlike = {} if best["preset"] else _unlike_the_paper(progress, best)
    if unlike:
        yield "", Text(clean(point(unlike)))


def _unlike_the_paper(progress: Progress, row: Mapping[str, Any]) -> dict[str, Any]:
    found = (each["params"] for each in progress.rows("search") if each["preset"] == "paper")
    paper, own = (json.loads(params or "{}") for params in (next(found, None), row["params"]))
    return {key: value for key, value in own.items() if paper.get(key) != value}


def _pace(progress: Progress) -> Lines:
    parts = [f"{progress.steps_per_s:.1f} steps/s", f"{duration(progress.elapsed_s)} elapsed"]
    eta = progress.eta_s
    if eta and progress.stage in ("search", "confirm"):
        parts.append(f"{span(*eta)} left")
    yield "pace", " · ".join(parts)


def _failures(progress: Progress) -> Lines:
    failures = progress.failures
    if failures:
        by_class = Counter(clean(each.error_class) for each in failures)
        yield "failed", Text(", ".join(f"{kind} × {n}" for kind, n in by_class.items()), "red")
        last = failures[-1]
        text = f"{last.trial}: {first_line(last.error_text)}"
        yield "", Text(text, overflow="ellipsis", no_wrap=True)


def _problem(progress: Progress) -> Iterator[Text]:
    problem = progress.ledger.recorder.problem
    if problem:
        yield Text(f"Results cannot be written and are kept in memory: {clean(problem)}", "bold red")


def _next(progress: Progress) -> Iterator[Text]:
    if progress.stage == "halted":
        yield Text(f"Stopping: {clean(progress.ledger.halted)}. Ctrl-C ends at once.", "yellow")
    elif progress.stage != "finished":
        resume = again("resume", progress.ledger.recorder.folder)
        yield Text("Ctrl-C stops after the running reports, keeps all; twice ends at once.", "dim")
        yield Text(f"Go on with: {resume}", "dim")


def _named(metric: str) -> str:
    return metric.replace("_", " ")
