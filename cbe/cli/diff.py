"""`cbe diff`: two studies or two trials side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbe.cli import stores
from cbe.cli.studies import AsJson
from cbe.cli.study_view import plain_table
from cbe.spec.metrics import METRICS, on_test
from cbe.words import NOT_SELECTED, NOTHING, clean, counts, figure, finite

if TYPE_CHECKING:
    from cbe.report.diff import StudyDiff, TrialDiff
    from cbe.spec.changes import Difference

_NAMES = {"error_class": "error", "error_text": "message"}
_NAMES |= {"best_test_error": "test error at the best validation error"}
_NAMES |= {name: metric.title for name, metric in METRICS.items()}


def command(
    one: Annotated[str, typer.Argument(metavar="A", help="A study, or a trial, e.g. STUDY/t0004.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another study or trial.")],
    store: stores.Option = None,
    as_json: AsJson = False,
) -> None:
    """Compare the settings and results of two studies or two trials."""
    from cbe.report.diff import StudyDiff, diff

    found = diff(stores.existing(store), one, other)
    if as_json:
        print(json.dumps(finite(found.to_plain()), indent=2))
    elif isinstance(found, StudyDiff):
        _print_studies(found)
    else:
        _print_trials(found)


def _print_studies(found: StudyDiff) -> None:
    _print_settings(found.settings, [side.study for side in found.sides])
    for side in found.sides:
        _print(f"{side.study}: {counts(side.counts) or 'no trial has started'}", "bold")
        _print(side.sentence)
        _print("")
    _print(found.sentence, "bold")


def _print_trials(found: TrialDiff) -> None:
    _print_settings(found.settings, found.trials)
    rows = []
    for name, values in found.figures.items():
        if any(value is not None for value in values):
            shown = [_shown(name, *pair) for pair in zip(values, found.metrics, strict=True)]
            rows.append([_called(name), *shown])
    if found.at_common_step is not None:
        errors = [figure("validation_error", value) for value in found.at_common_step]
        rows.append([f"validation error, step {found.common_step:,}", *errors])
    _print_table("figure", found.trials, rows)
    if any(row[0].endswith("*") for row in rows):
        _print(NOT_SELECTED, "dim")
    if found.common_step is None:
        _print("They have no evaluation at the same step.")
    if len({*found.metrics}) > 1:
        _print(f"Their objectives are not the same: {' and '.join(found.metrics)}.")


def _print_settings(settings: Sequence[Difference], names: Sequence[str]) -> None:
    if settings:
        rows = [[each.key, _value(each.before), _value(each.after)] for each in settings]
        _print_table("setting", names, rows)
    else:
        _print("No setting differs.")
    _print("")


def _print_table(what: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.text import Text

    from cbe.cli.console import out

    table = plain_table((what, *(clean(name) for name in names)))
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    out.print(table)


def _print(text: str, style: str = "") -> None:
    from rich.text import Text

    from cbe.cli.console import out

    out.print(Text(clean(text), style))


def _called(name: str) -> str:
    said = _NAMES.get(name, name.replace("_", " "))
    return f"{said}*" if on_test(name) else said


def _shown(name: str, value: Any, metric: str) -> str:
    if value is None:
        return NOTHING
    if name == "objective":
        return figure(metric, value)
    if isinstance(value, float):
        return figure(name, value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _value(value: Any) -> str:
    """A setting as a study file has it; what is not set there is a dash."""
    if value is None or isinstance(value, str):
        return NOTHING if value is None else value
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
