"""`cbe best`: the answer of a study."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import stores
from cbe.cli.studies import Name, plain_table
from cbe.cli.words import NOT_SELECTED, NOTHING, counts
from cbe.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from cbe.report.best import Answer, Ranked

_DECIMALS = {"validation_loss": 4, "parameters": 0, "macs": 0}


def command(
    name: Name,
    k: Annotated[int, typer.Option("-k", min=1, help="How many configs")] = 1,
    store: stores.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="An object for a program")] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="A file for `cbe train`")] = False,
) -> None:
    """Say which config is best, and how sure that is."""
    from cbe.report.best import best

    if as_json and as_yaml:
        raise InputError("--json and --yaml: both were given; give one of the two")
    folder = stores.opened(store).study(name)
    answer = best(folder, k)
    if as_yaml:
        print(answer.to_yaml(), end="")
    else:
        print_answer(answer, stores.again("best", folder), as_json=as_json)


def print_answer(answer: Answer, again: str, *, as_json: bool) -> None:
    """The answer on stdout; `again` is the command that gives it."""
    if as_json:
        print(json.dumps(answer.to_plain(), indent=2))
        return
    from rich.text import Text

    from cbe.cli.console import out

    out.print(Text(answer.sentence, "bold"))
    out.print(_ranking(answer))
    out.print(Text(f"{NOT_SELECTED}\ntrials: {counts(answer.counts)}", "dim"))
    if answer.front:
        out.print(Text("\nNo other config is better in every objective (by the search)", "bold"))
        out.print(_front(answer))
    first = answer.ranked[0]
    if first.point:
        out.print(Text(f"\nSearched values of {first.preset or first.config_id}", "bold"))
        for key, value in first.point.items():
            out.print(Text(f"  {key}: {value:.6g}" if isinstance(value, float) else f"  {key}: {value}"))
    hint = f"\nTrain it again: {again} --yaml > best.yaml; cbe train best.yaml"
    out.print(Text(hint, "dim"), soft_wrap=True)


def _ranking(answer: Answer) -> Table:
    metric = answer.metric
    figures = ("n", _head(metric), "±\n(95 %)", "against base\n(95 %)", "search\nsaid", "test\nerror*, %")
    table = plain_table(("rank", "config"), figures)
    for each in answer.ranked:
        table.add_row(
            str(each.rank),
            each.preset or each.config_id,
            str(each.n),
            _number(metric, each.mean),
            _reach(metric, each.interval),
            _against_base(metric, each),
            _number(metric, each.searched),
            _number("test_error", each.test_error),
        )
    return table


def _front(answer: Answer) -> Table:
    metrics = list(answer.front[0].values)
    table = plain_table(("config", "trials"), [_head(metric) for metric in metrics])
    for each in answer.front:
        values = (_number(metric, each.values[metric]) for metric in metrics)
        table.add_row(each.preset or each.config_id, " ".join(each.trials), *values)
    return table


def _head(metric: str) -> str:
    """A metric and its unit over two lines, so that the column is as narrow as its numbers."""
    return metric.replace("_", "\n") + (", %" if metric.endswith("_error") else "")


def _against_base(metric: str, ranked: Ranked) -> str:
    found = ranked.versus_base
    if found is None:
        return NOTHING
    return f"{_number(metric, found.mean)} ± {_reach(metric, found.interval)}"


def _reach(metric: str, interval: tuple[float, float] | None) -> str:
    """How far an interval goes to either side of its mean."""
    return NOTHING if interval is None else _number(metric, (interval[1] - interval[0]) / 2)


def _number(metric: str, value: float | None) -> str:
    """A value without its unit, which stands in the head of the table."""
    if value is None:
        return NOTHING
    scaled = 100 * value if metric.endswith("_error") else value
    return f"{scaled:,.{_DECIMALS.get(metric, 2)}f}".replace("-", "−")
