"""`cbe plan --gpus`: a study played through on clusters of several sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cbe.cli import stores
from cbe.cli.study_view import plain_table
from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.words import plural, span

if TYPE_CHECKING:
    from cbe.store.folder import Store
    from cbe.study.budget.forecast import Forecast
    from cbe.study.budget.plan import Range
    from cbe.study.budget.trial_history import Past

MOST_GPUS = 100_000


def show(
    study: StudyConfig,
    gpus: str,
    like: str | None,
    store: str | None,
    terms: Mapping[str, float | None],
    as_json: bool,
) -> None:
    counts = _counts(gpus)
    given: dict[str, Any] = dict(_given(terms))
    from cbe.study.budget.forecast import forecast

    found = forecast(study, _past(study, stores.opened(store, study.storage.store), like), counts, **given)
    if as_json:
        print(json.dumps(found.to_plain(), indent=2))
    else:
        _print(found)


def _counts(gpus: str) -> list[int]:
    parts = [part.strip() for part in gpus.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MOST_GPUS for part in parts):
        raise InputError(
            f"--gpus {gpus}: wanted whole numbers from 1 to {MOST_GPUS} with commas between, as 1,8,64"
        )
    return sorted({int(part) for part in parts})


def _given(terms: Mapping[str, float | None]) -> Iterator[tuple[str, float]]:
    for name, value in terms.items():
        if value is None:
            continue
        if not math.isfinite(value) or value < 0 or (name == "speed" and value == 0):
            option = name.removesuffix("_s").replace("_", "-")
            raise InputError(
                f"--{option} {value:g}: wanted a number {'above' if name == 'speed' else 'from'} 0"
            )
        yield name, value


def _past(study: StudyConfig, place: Store, like: str | None) -> Past:
    """The trials of the study that was named, of the one of the same name, or a probe."""
    from cbe.cli.console import say
    from cbe.study.budget.plan import measure
    from cbe.study.budget.trial_history import guessed, recorded
    from cbe.study.lifecycle import load

    if like is not None:
        _, folder = load(place, like)
    else:
        folder = place.study(study.name)
    found = recorded(study, folder) if folder.exists() else None
    if like is not None and found is None:
        raise InputError(f"--like {like}: no trial of it has reported; name another, or none for a probe")
    return found or guessed(study, measure(study, say=say))


def _print(found: Forecast) -> None:
    from rich.text import Text

    from cbe.cli.console import out

    runs = f"{plural(found.trials, 'trial')} and {plural(found.confirm_runs, 'run')} to confirm"
    out.print(Text(f"{found.study}: {runs}", "bold"))
    priced = any(each.usd.high for each in found.outlooks)
    table = plain_table(
        (), ("GPUs", "time", "GPU-hours busy", "GPU-hours paid", "in use", *(["USD"] if priced else []))
    )
    for each in found.outlooks:
        table.add_row(
            f"{each.gpus:,}",
            span(each.wall_s.low, each.wall_s.high),
            _figures(each.busy_gpu_hours),
            _figures(each.paid_gpu_hours),
            f"{100 * each.utilisation:.0f} %",
            *([_figures(each.usd)] if priced else []),
        )
    out.print(table)
    for note in _notes(found):
        out.print(Text(f"\n{note}"))


def _notes(found: Forecast) -> Iterator[str]:
    if found.like is not None:
        taken = f"as the {plural(found.recorded, 'recorded trial')} of {found.like} went"
    else:
        taken = "of what a few steps took here; which are pruned is drawn at random"
    times = "" if found.speed == 1 else f", {found.speed:g} times as fast"
    yield (
        f"Trials {taken}{times}; the tenth to the ninetieth percentile of {found.replays} replays with Ray "
        f"Tune's scheduler. Machines hold one GPU, or as many as a trial wants, and are paid from "
        f"{found.node_start_s:g} s before their first trial until {found.idle_s:g} s after their last; the "
        "head is not counted."
    )
    if "cpu" in found.devices:
        here = "recorded" if found.like is not None else "measured"
        yield f"They were {here} on a CPU, and a GPU is taken to be no faster; --speed says that it is."
    if found.differs:
        yield f"{found.like} has another {', '.join(found.differs)}: its steps may take more or less."
    spent = {
        name: ", ".join(
            f"{each.gpus:,}" for each in found.outlooks if each.budget.get(name) in ("yes", "maybe")
        )
        for name in ("wall_hours", "gpu_hours", "usd")
    }
    for name, where in spent.items():
        if where:
            yield f"budget.{name} may end the study early on {where} GPUs, which is not played."


def _figures(values: Range) -> str:
    low, high = (f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in (values.low, values.high))
    return low if low == high else f"{low} to {high}"
