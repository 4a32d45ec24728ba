"""`cbe best`: the answer of a study, or of all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import backends, stores
from cbe.cli.study_view import plain_table
from cbe.errors import InputError
from cbe.spec.metrics import METRICS, PERCENT, on_test
from cbe.words import NOT_SELECTED, NOTHING, clean, counts, number, p_value

if TYPE_CHECKING:
    from rich.table import Table

    from cbe.report.across import Task
    from cbe.report.best import Answer
    from cbe.report.intervals import Interval
    from cbe.report.paired import Difference


def command(
    name: Annotated[str | None, typer.Argument(help="A study. Default: all studies of the store.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many configs to show.")] = 1,
    where: Annotated[
        str | None,
        typer.Option(help="Rank only configs for which this SQL condition holds, e.g. 'heads <= 4'."),
    ] = None,
    store: stores.Option = None,
    address: backends.Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the best config as a file for `cbe train`.")
    ] = False,
) -> None:
    """Show the best configs with their 95 % intervals."""
    if as_json and as_yaml:
        raise InputError("--json and --yaml: both were given; give one of the two")
    if name is None and as_yaml:
        raise InputError("--yaml: of which study? give its name, as `cbe best NAME --yaml`")
    studies = backends.opened(store, address)
    if name is None:
        print_tasks(studies.best_of_all(k, where), as_json=as_json)
        return
    answer = studies.best(name, k, where)
    if as_yaml:
        print(answer.to_yaml(), end="")
        return
    again = studies.command("best", name) + (f" --where {shlex.quote(where)}" if where else "")
    print_answer(answer, again, as_json=as_json)


def print_answer(answer: Answer, again: str, *, as_json: bool) -> None:
    """The answer on stdout; `again` is the command that gives it."""
    if as_json:
        print(json.dumps(answer.to_plain(), indent=2))
        return
    from rich.text import Text

    from cbe.cli.console import out

    out.print(Text(answer.headline, "bold"))
    out.print(Text(answer.sentence))
    if answer.where:
        out.print(Text(f"of configs with {clean(answer.where)}", "dim"))
    out.print(_ranking(answer))
    selected = "* used for selection" if on_test(answer.metric) else NOT_SELECTED
    out.print(Text(f"{selected}\n{answer.note}\ntrials: {counts(answer.counts)}", "dim"))
    if answer.front:
        out.print(Text("\nNo other config is better in every objective (by the search)", "bold"))
        out.print(_front(answer))
    first = answer.ranked[0]
    if first.point:
        out.print(Text(f"\nSearched values of {first.name}", "bold"))
        for key, value in first.point.items():
            out.print(Text(f"  {key}: {value:.6g}" if isinstance(value, float) else f"  {key}: {value}"))
    train = f"OMP_NUM_THREADS={answer.threads} cbe train best.yaml"
    hint = f"\nTrain it again:\n  {again} --yaml > best.yaml\n  {train}"
    out.print(Text(hint, "dim"), soft_wrap=True)


def _ranking(answer: Answer) -> Table:
    metric = answer.metric
    beside = ("minus\nbase\n(95 %)", "minus\npaper\n(95 %)")
    figures = ("n", f"{_head(metric)}\n(95 %)", *beside, "search\nsaid", "test\nerror*, %")
    table = plain_table(("#", "config"), figures, gap=1)
    for each in answer.ranked:
        table.add_row(
            NOTHING if each.rank is None else str(each.rank),
            each.name,
            str(each.n),
            _mean(metric, each.mean, each.interval),
            _against(metric, each.versus_base, each.verdict),
            _against(metric, each.versus_paper),
            number(metric, each.searched),
            number("test_error", each.test_error),
        )
    return table


def _front(answer: Answer) -> Table:
    metrics = list(answer.front[0].values)
    table = plain_table(("config", "trials"), [_head(metric) for metric in metrics])
    for each in answer.front:
        values = (number(metric, each.values[metric]) for metric in metrics)
        table.add_row(each.name, " ".join(each.trials), *values)
    return table


def _head(metric: str) -> str:
    """A metric and its unit over two lines, so that the column is as narrow as its numbers."""
    about = METRICS[metric]
    return about.title.replace(" ", "\n") + (f", {about.unit.sign}" if about.unit.sign else "")


def print_tasks(tasks: Sequence[Task], *, as_json: bool) -> None:
    """The best of all studies on stdout."""
    if as_json:
        print(json.dumps([task.to_plain() for task in tasks], indent=2))
        return
    from rich.text import Text

    from cbe.cli.console import out

    for task in tasks:
        out.print(Text(clean(task.title), "bold"))
        out.print(_placing(task))
        if task.unconfirmed:
            left = f"left out, having confirmed nothing yet: {', '.join(task.unconfirmed)}"
            out.print(Text(left, "dim"))
        out.print()
    beside = "" if all(task.confirmed for task in tasks) else "; figures of a search flatter its best"
    out.print(Text(f"Ranked by validation error at the end of training{beside}.\n{NOT_SELECTED}", "dim"))


def _placing(task: Task) -> Table:
    metric = "validation_error"
    figures = ("n", f"{_head(metric)}\n(95 %)", "minus\nbase\n(95 %)", "test\nerror*, %")
    table = plain_table(("#", "config", "of" if task.confirmed else "of the search of"), figures)
    for each in task.ranked:
        compared = each.versus_base if task.confirmed else None  # else these runs have chosen the config
        table.add_row(
            str(each.rank),
            each.name,
            ", ".join(each.studies),
            str(each.n),
            _mean(metric, each.mean, each.interval),
            _against(metric, each.versus_base, p_value(compared.p) if compared else None),
            number("test_error", each.test_error),
        )
    return table


def _mean(metric: str, mean: float, interval: Interval | None) -> str:
    """A mean over its interval; alone where there is one run. Ends of a wide interval have one decimal."""
    if interval is None:
        return number(metric, mean)
    is_wide = METRICS[metric].unit is PERCENT and max(map(abs, interval)) >= 0.1
    low, high = (number(metric, end, decimals=1 if is_wide else None) for end in interval)
    return f"{number(metric, mean)}\n({low} to {high})"


def _against(metric: str, found: Difference | None, sure: str | None = None) -> str:
    """A difference, its interval, and how sure it is where that can be said."""
    if found is None:
        return NOTHING
    said = _mean(metric, found.mean, found.interval)
    return f"{said}\n{sure}" if sure else said
