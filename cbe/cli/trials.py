"""`cbe show STUDY/TRIAL` and `cbe logs STUDY/TRIAL`: one trial."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cbe.errors import InputError
from cbe.spec.metrics import METRICS, on_test
from cbe.words import NOT_SELECTED, clean, duration, figure, point

if TYPE_CHECKING:
    from cbe.service.clients.interface import Studies
    from cbe.service.trials import Trial


def show(studies: Studies, name: str, *, as_json: bool, as_yaml: bool) -> None:
    """Prints one trial."""
    found = _trial(studies, name)
    if as_json:
        print(json.dumps(found.to_plain(), indent=2))
    elif as_yaml:
        print(found.to_yaml(), end="")
    else:
        _print(found, studies.command("show", name))


def logs(studies: Studies, name: str) -> None:
    """Prints what the process of one trial has said."""
    found = _trial(studies, name)
    if not found.log and found.row["reused_from"]:
        raise InputError(
            f"{name}: was reused, and has no process of its own; "
            f"see the log of {found.row['reused_from']}, which was trained"
        )
    if not found.log:
        raise InputError(
            f"{name}: its process has said nothing yet; see how it stands with "
            f"`{studies.command('show', name)}`"
        )
    for line in found.log.splitlines():
        print(clean(line))


def _trial(studies: Studies, name: str) -> Trial:
    study, _, trial = name.partition("/")
    return studies.trial(study, trial)


def _print(found: Trial, again: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from cbe.cli.console import out, say

    state = found.row["state"]
    out.print(Text(f"{found.name}: {state}", "bold"))
    grid = Table.grid(padding=(0, 2))
    for label, text in _lines(found):
        grid.add_row(label, Text(clean(text)))
    out.print(grid)
    if found.curve and found.curve[-1]["test_error"] is not None:
        say(NOT_SELECTED, "dim", out)
    if found.config is not None:
        file = f"{found.row['trial']}.yaml"
        again_to = f"\nTrain it again: {again} --yaml > {file} && cbe train {file}"
        out.print(Text(again_to, "dim"), soft_wrap=True)


def _lines(found: Trial) -> Iterator[tuple[str, str]]:
    row = found.row
    yield "role", f"{row['role']}, {row['preset']}" if row["preset"] else str(row["role"])
    yield "config", f"{row['config_id'] or 'none'}, seed {row['seed']}, label split {row['label_split']}"
    values = json.loads(row["params"] or "{}")
    if values:
        yield "values", point(values)
    if row["steps"]:
        yield "step", f"{row['step'] or 0:,} of {row['steps']:,}, {duration(row['wall_s'])}"
    if row["node"]:
        yield (
            "ran on",
            f"{row['device']} of {row['node']}" + (f", {n} retries" if (n := row["retries"]) else ""),
        )
    if row["reused_from"]:
        yield "reused from", f"{row['reused_from']}, at no cost"
    last = found.curve[-1] if found.curve else {}
    for name, metric in METRICS.items():
        if metric.show and last.get(name) is not None:
            yield metric.title + "*" * on_test(name), figure(name, last[name])
    if row["error_class"]:
        yield "error", f"{row['error_class']}: {row['error_text']}"
