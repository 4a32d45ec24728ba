"""What a terminal shows of studies: the list of all, and the details of one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from cbe.store.rows import Row
from cbe.words import NOT_SELECTED, clean, counts, duration, figure, first_line, plural, point, span

if TYPE_CHECKING:
    from rich.table import Table

    from cbe.service.clients.interface import Studies
    from cbe.service.live.study_status import StudyStatus
    from cbe.study.overview import Details, Overview, Spent, StageProgress


@dataclass(frozen=True)
class _Column:
    head: str
    cell: Callable[[StudyStatus], str]
    turn: int = 0  # at which it is given room; those of 0 always have it
    left: bool = False

    def width(self, found: Sequence[StudyStatus]) -> int:
        from rich.cells import cell_len

        return max(map(cell_len, (*self.head.split("\n"), *map(self.cell, found))))


_LIST = (
    _Column("study", lambda each: each.study, left=True),
    _Column(
        "state",
        lambda each: f"{each.state} {each.queue_position or ''}".strip(),
        left=True,
    ),
    _Column("stage", lambda each: each.overview.stage or "", turn=5, left=True),
    _Column("search", lambda each: _part(each.overview.search)),
    _Column("confirm", lambda each: _part(each.overview.confirm)),
    _Column("best\nso far", lambda each: figure(each.overview.metric, each.overview.best)),
    _Column("left", lambda each: span(*each.overview.eta_s) if each.overview.eta_s else "", turn=1),
    _Column("spent", lambda each: _spent(each.overview.spent)[0], turn=2),
    _Column("owner", lambda each: clean(each.owner or ""), turn=3, left=True),
    _Column("updated", lambda each: _time(each.overview.updated), turn=4),
)
_GAP = 2


def study_list(found: Sequence[StudyStatus], room: int) -> Table:
    """The studies, with all columns that say something and have room."""
    chosen: list[_Column] = []
    for column in sorted(_LIST, key=lambda column: column.turn):
        says, needs = any(map(column.cell, found)), column.width(found) + _GAP * bool(chosen)
        if not column.turn or (says and needs <= room):
            chosen.append(column)
            room -= needs
    columns = [column for column in _LIST if column in chosen]
    table = plain_table((), gap=_GAP)
    for column in columns:
        table.add_column(column.head, justify="left" if column.left else "right", no_wrap=True)
    for each in found:
        table.add_row(*(_escaped(column.cell(each)) for column in columns))
    return table


def plain_table(left: Sequence[str], right: Sequence[str] = (), gap: int = 2) -> Table:
    """An empty table without more lines than it needs, so that it fits 80 columns."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for name in left:
        table.add_column(name, overflow="fold", no_wrap=name in ("study", "state", "stage"))
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def print_details(found: Details, studies: Studies) -> None:
    from cbe.cli.console import out
    from cbe.cli.console import say as say_to
    from cbe.cli.progress.leader import leading
    from cbe.report.machines import machines
    from cbe.service.live.study_status import StudyStatusDetails
    from cbe.study.progress_view import DetailsView

    say = partial(say_to, console=out)
    about = found.overview
    again, here = partial(studies.command, name=about.study), studies.local_folder(about.study)
    say(f"{about.study}: {about.state}" + (f" ({about.reason})" if about.reason else ""), "bold")
    if about.question:
        say(about.question, "italic")
    if isinstance(found, StudyStatusDetails):
        say(_submitted(found.study_status))
    so_far = counts(about.counts) or "no trial has started"
    say(f"search {_part(about.search)}, confirm {_part(about.confirm)}: {so_far}")
    if first := DetailsView(found).leader:
        said = leading(first, about.metric or "")
        say(f"So far: {said}" if about.under_way else said)
    if about.state == "running":
        say(_pace(about))
    if about.spent.trial_hours:
        *more, time = _spent(about.spent)
        say(f"spent: {', '.join([f'{time} of trials', *more])}")
    if about.cut_short:
        say(f"search ended early: {about.cut_short}")
    if left := _unspent(about.unspent or {}):
        say(f"unspent: {left}")
    if here and (seen := machines(here)):
        say(f"cluster: {seen.sentence()}")
    if about.problem:
        say(f"results could not be written: {first_line(about.problem)}", "red")
    if about.outage:
        say(first_line(about.outage))
    if found.trials:
        out.print(_trials(found.trials, about.metric or ""))
        say(NOT_SELECTED, "dim")
        _print_values(found.trials)
        _print_failures(found.trials)
    say("")
    if here:
        say(f"Sampler's history: optuna-dashboard {shlex.quote(found.optuna)}")
    if about.under_way:
        say(f"Watch it: {again('show')} --watch")
    if about.state in ("finished", "running"):
        say(f"Answer: {again('best')}")
    elif not about.under_way:
        say(f"Go on with: {again('resume')}")


def _trials(rows: Sequence[Row], metric: str) -> Table:
    failed = any(row["error_class"] for row in rows)
    figures = ("step", metric.replace("_", "\n"), "test\nerror*", "wall")
    table = plain_table(("trial", "role", "state"), figures)
    reused = any(row.get("reused_from") for row in rows)
    if failed:
        table.add_column("error", overflow="fold")
    if reused:
        table.add_column("reused from", overflow="fold")
    for row in rows:
        step = f"{row['step'] or 0:,}/{row['steps']:,}" if row["steps"] else ""
        role = f"{row['role']}, {row['preset']}" if row["preset"] else row["role"]
        cells = [row["trial"], role, row["state"], step, figure(metric, row["objective"])]
        cells += [figure("test_error", row["last_test_error"]), duration(row["wall_s"])]
        more = [_escaped(row["error_class"])] * failed + [_escaped(row.get("reused_from"))] * reused
        table.add_row(*cells, *more)
    return table


def _print_values(rows: Sequence[Row]) -> None:
    """What was sampled, once for each config."""
    from rich.table import Table
    from rich.text import Text

    from cbe.cli.console import out

    trials: dict[str, list[str]] = {}
    for row in rows:
        if not row["preset"] and row["params"] not in (None, "{}"):
            trials.setdefault(row["params"], []).append(row["trial"])
    if not trials:
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(max_width=17)
    for params, names in trials.items():
        grid.add_row(Text(" ".join(names)), Text(clean(point(json.loads(params)))))
    out.print(Text("\nSearched values", "bold"))
    out.print(grid)


def _print_failures(rows: Sequence[Row]) -> None:
    """Each error once, with the trials that ended by it."""
    from rich.text import Text

    from cbe.cli.console import out

    trials: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["error_class"]:
            trials.setdefault((row["error_class"], row["error_text"] or ""), []).append(row["trial"])
    if trials:
        out.print(Text("\nFailures", "bold"))
    for (kind, text), names in trials.items():
        out.print(Text(f"{' '.join(names)}: {clean(kind)}: {clean(text)}"))


def _pace(about: Overview) -> str:
    parts = [f"{about.steps_per_s or 0:.1f} steps/s", f"{duration(about.elapsed_s)} elapsed"]
    if about.eta_s:
        parts.append(f"{span(*about.eta_s)} left")
    return " · ".join(parts)


def _spent(spent: Spent) -> list[str]:
    """What trials have taken, the dearest first."""
    parts = [f"{spent.usd:,.2f} USD"] if spent.usd else []
    parts += [f"{spent.gpu_hours:,.1f} GPU h"] if spent.gpu_hours else []
    return [*parts, f"{duration(spent.trial_hours * 3600)}" if spent.trial_hours else ""]


def _unspent(left: Mapping[str, float]) -> str:
    """What a study was allowed and did not need."""
    runs, units = int(left.get("confirm_runs", 0)), {"usd": "USD", "gpu_hours": "GPU h", "wall_hours": "h"}
    parts = [f"{plural(runs, 'run')} of the confirmation"] if runs else []
    parts += [f"{left[name]:,.2f} {unit}" for name, unit in units.items() if left.get(name)]
    return ", ".join(parts)


def _submitted(study_status: StudyStatus) -> str:
    parts = [f"of {study_status.owner}"] if study_status.owner else ["submitted to no service"]
    parts += [f"submitted {_time(study_status.submitted)}"] if study_status.submitted else []
    parts += [f"priority {study_status.priority}"] if study_status.priority else []
    parts += [f"place {study_status.queue_position} in the queue"] if study_status.queue_position else []
    return ", ".join(parts)


def _part(part: StageProgress | None) -> str:
    return f"{part.done}/{part.total}" if part else ""


def _time(time: datetime | None) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M") if time else ""


def _escaped(text: object) -> str:
    from rich.markup import escape

    return escape(clean(text or ""))
