"""`cbe plan`: what a study will take, before it is started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.cli import data, forecast, stores
from cbe.cli.run import Settings
from cbe.cli.study_view import plain_table
from cbe.errors import InputError
from cbe.spec import StudyConfig, read_config
from cbe.words import plural, span

if TYPE_CHECKING:
    from cbe.study.budget.plan import Plan, Range

_REACHED = {
    "yes": "will be spent before the end: the study stops there",
    "maybe": "may be spent before the end",
    "no": "lasts to the end",
}


def command(
    file: Annotated[Path, typer.Argument(help="A study file (YAML).")],
    settings: Settings = None,
    concurrent: Annotated[
        int | None, typer.Option(min=1, help="Trials at once. Default: as many as fit on this machine.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(help="Simulate the study on clusters of these sizes, e.g. 1,8,64."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="With --gpus: trials of the search. Default: as in the file.")
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="With --gpus: take trial times from this study. Default: one of the same name, or a probe."
        ),
    ] = None,
    store: stores.Option = None,
    speed: Annotated[
        float | None,
        typer.Option(help="With --gpus: speed of the GPUs relative to the measured trials. Default: 1."),
    ] = None,
    node_start: Annotated[
        float | None,
        typer.Option(help="With --gpus: seconds until a new machine runs a trial. Default: 180."),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(help="With --gpus: seconds until an idle machine is removed. Default: 300."),
    ] = None,
    usd_per_gpu_hour: Annotated[
        float | None,
        typer.Option(help="With --gpus: price of a GPU-hour. Default: from resources.usd_per_hour."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate the time, steps and cost of a study without running it."""
    terms = {"speed": speed, "node_start_s": node_start, "idle_s": idle, "usd_per_gpu_hour": usd_per_gpu_hour}
    if gpus is not None:
        if concurrent is not None:
            raise InputError(
                "--concurrent: with --gpus the GPUs say what runs at once; leave out one of them"
            )
        some = [*(settings or ()), *([] if trials is None else [f"budget.trials={trials}"])]
        study = read_config(StudyConfig, file, some)
        forecast.show(study, gpus, like, store, terms, as_json)
        return
    if like is not None or trials is not None or any(value is not None for value in terms.values()):
        raise InputError(
            "--like, --trials, --speed, --node-start, --idle, --usd-per-gpu-hour: are for --gpus; "
            "add it, as --gpus 1,8,64"
        )
    study = read_config(StudyConfig, file, settings or ())
    from cbe.cli.console import say
    from cbe.study.budget.plan import local_concurrency, measure, plan

    data.print_data_summary(study)
    at_once = concurrent or local_concurrency(study)
    found = plan(study, concurrent=at_once, probe=measure(study, say=say))
    if as_json:
        print(json.dumps(found.to_plain(), indent=2))
    else:
        _print(found)


def _print(found: Plan) -> None:
    from rich.table import Table
    from rich.text import Text

    from cbe.cli.console import out

    runs = f"{plural(found.trials, 'trial')} and {plural(found.confirm_runs, 'run')} to confirm"
    out.print(Text(f"{found.study}: {runs}, {found.concurrent} at once", "bold"))
    table = plain_table((), ("step", "trials of the search that get there"))
    for rung in found.rungs:
        table.add_row(f"{rung.step:,}", _whole(rung.low, rung.high))
    out.print(table)
    grid = Table.grid(padding=(0, 2))
    for name, value in _figures(found):
        grid.add_row(name, Text(value))
    out.print(grid)
    if found.varies:
        out.print(Text(f"\nMore or less where the search changes {', '.join(found.varies)}.", "yellow"))


def _figures(found: Plan) -> Iterator[tuple[str, str]]:
    yield "steps", _whole(found.steps.low, found.steps.high)
    if found.wall_s:
        yield "time", span(found.wall_s.low, found.wall_s.high)
    if found.gpu_hours and found.gpu_hours.high:
        yield "GPU hours", _decimal(found.gpu_hours)
    if found.usd and found.usd.high:
        yield "USD", _decimal(found.usd)
    for name, reached in found.budget.items():
        yield f"budget.{name}", _REACHED[reached]
    if found.probe:
        probe = found.probe
        parts = {"step": probe.step_s, "evaluation": probe.evaluation_s, "checkpoint": probe.checkpoint_s}
        times = ", ".join(f"{_millis(each)} a{'n' * (name[0] == 'e')} {name}" for name, each in parts.items())
        yield "measured", f"{times}, on {probe.device}"


def _whole(low: float, high: float) -> str:
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _decimal(values: Range) -> str:
    low, high = f"{values.low:,.2f}", f"{values.high:,.2f}"
    return low if low == high else f"{low} to {high}"


def _millis(values: Range) -> str:
    low, high = f"{1000 * values.low:.0f}", f"{1000 * values.high:.0f}"
    return f"{low} ms" if low == high else f"{low}–{high} ms"
