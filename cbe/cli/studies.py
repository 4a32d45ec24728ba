"""`cbe ls`, `cbe show` and `cbe stop`: the studies of a store."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbe.cli import stores
from cbe.words import NOT_SELECTED, clean, counts, duration, figure, first_line, point, span

if TYPE_CHECKING:
    from rich.table import Table

    from cbe.study.overview import Details, Overview, Part, Row

Name = Annotated[str, typer.Argument(help="The study's name")]
AsJson = Annotated[bool, typer.Option("--json", help="An object for a program")]


def ls(
    store: stores.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list for a program")] = False,
) -> None:
    """List the studies of a store."""
    from cbe.study.overview import overviews

    place = stores.existing(store)
    found = list(overviews(place))
    if as_json:
        print(json.dumps([each.to_plain() for each in found], indent=2))
        return
    from cbe.cli.console import out
    from cbe.cli.talk import say

    if found:
        out.print(_list(found))
    else:
        say(f"{place.uri}: holds no studies; begin one with `cbe run FILE`")
    for each in found:
        if each.state == "unreadable":
            say(f"{each.study}: {each.why}")


def show(name: Name, store: stores.Option = None, as_json: AsJson = False) -> None:
    """Show how a study stands, and all its trials."""
    from cbe.study.overview import details

    place = stores.existing(store)
    found = details(place, name)
    if as_json:
        print(json.dumps(found.to_plain(), indent=2))
        return
    _print_details(found, stores.again("resume", place.study(name)), stores.again("best", place.study(name)))


def stop(name: Name, store: stores.Option = None) -> None:
    """Ask a running study to stop; what it has done is kept."""
    from cbe.cli.talk import say
    from cbe.study.control import ask_to_stop
    from cbe.study.start import load

    _, folder = load(stores.existing(store), name)
    ask_to_stop(folder)
    say(f"{name} stops within seconds.\nGo on with: {stores.again('resume', folder)}")


def _list(found: Sequence[Overview]) -> Table:
    table = plain_table(("study", "state", "stage"), ("search", "confirm", "best of search", "updated"))
    for each in found:
        cells = [each.study, each.state, each.stage or "", _part(each.search), _part(each.confirm)]
        table.add_row(*cells, figure(each.metric, each.best), _time(each.updated))
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


def _print_details(found: Details, resume: str, best: str) -> None:
    from cbe.cli.console import out
    from cbe.cli.talk import say as say_to

    say = partial(say_to, console=out)
    about = found.overview
    say(f"{about.study}: {about.state}" + (f" ({about.why})" if about.why else ""), "bold")
    if about.question:
        say(about.question, "italic")
    so_far = counts(about.counts) or "no trial has started"
    say(f"search {_part(about.search)}, confirm {_part(about.confirm)}: {so_far}")
    if about.best is not None:
        say(f"best of the search: {figure(about.metric, about.best)} ({about.best_trial})")
    if about.state == "running":
        say(_pace(found.running))
    if found.trials:
        out.print(_trials(found.trials, about.metric or ""))
        say(NOT_SELECTED, "dim")
        _print_values(found.trials)
        _print_failures(found.trials)
    say("")
    say(f"Sampler's history: optuna-dashboard {shlex.quote(found.optuna)}")
    say(f"Answer: {best}" if about.state in ("finished", "running") else f"Go on with: {resume}")


def _trials(rows: Sequence[Row], metric: str) -> Table:
    failed = any(row["error_class"] for row in rows)
    figures = ("step", metric.replace("_", "\n"), "test\nerror*", "wall")
    table = plain_table(("trial", "role", "state"), figures)
    if failed:
        table.add_column("error", overflow="fold")
    for row in rows:
        step = f"{row['step'] or 0:,}/{row['steps']:,}" if row["steps"] else ""
        role = f"{row['role']}, {row['preset']}" if row["preset"] else row["role"]
        cells = [row["trial"], role, row["state"], step, figure(metric, row["objective"])]
        cells += [figure("test_error", row["last_test_error"]), duration(row["wall_s"])]
        table.add_row(*cells, *[_escaped(row["error_class"])] * failed)
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


def _pace(told: Any) -> str:
    parts = [f"{told.get('steps_per_s') or 0:.1f} steps/s", f"{duration(told.get('elapsed_s'))} elapsed"]
    if told.get("eta_s"):
        parts.append(f"{span(*told['eta_s'])} left")
    if told.get("problem"):
        parts.append(f"results cannot be written: {first_line(told['problem'])}")
    return " · ".join(parts)


def _part(part: Part | None) -> str:
    return f"{part.done}/{part.total}" if part else ""


def _time(time: datetime | None) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M") if time else ""


def _escaped(text: object) -> str:
    from rich.markup import escape

    return escape(clean(text or ""))
