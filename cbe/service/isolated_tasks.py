"""What the service runs in a separate process: functions of plain values."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from cbe.errors import ConfigError, Fault, InputError
from cbe.spec import StudyConfig
from cbe.spec.faults import KeyPath, where_in
from cbe.spec.files import read_config_text
from cbe.spec.yaml_text import parse
from cbe.store.folder import Store

FILE = Path("study.yaml")
MOST_FAULTS = 100
MOST_TEXT = 100_000  # characters of a study's file: to read so many takes seconds
_WHERE = re.compile(rf"{re.escape(str(FILE))}(?::(\d+))? ?(.*)")
_NO_GPU = "Time and cost are left out: trials want GPUs, and the service's machine, which measures, has none."


def _from_json(text: str) -> str:
    """A study file that came as JSON, as YAML."""
    try:
        plain = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    except ValueError as error:
        raise InputError(f"the body is not valid JSON ({error}); correct it, or send YAML") from None
    if not isinstance(plain, dict):
        raise InputError(f"the body is a {type(plain).__name__}; wanted an object with a study's keys")
    return yaml.safe_dump(plain, sort_keys=False)


def _refuse_long(text: str) -> None:
    if len(text) > MOST_TEXT:
        problem = f"is of {len(text):,} characters, and the service takes {MOST_TEXT:,}"
        raise ConfigError([Fault(str(FILE), problem, "say less in it, or run it with `cbe run`")])


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is given twice")
        found[key] = value
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def check(text: str, store: str, is_json: bool = False) -> dict[str, Any]:
    """What is wrong with a study file, or what it asks for and its values."""
    try:
        _refuse_long(text)
        text = _from_json(text) if is_json else text
        study = read_config_text(StudyConfig, text, name=str(FILE))
        faults = [*_not_here(text, study, store), *_earlier_study_faults(text, study, store)]
    except ConfigError as error:
        study, faults = None, list(error.faults)
    told: dict[str, Any] = {
        "faults": [plain_fault(fault) for fault in faults[:MOST_FAULTS]],
        "about": None,
        "values": None,
    }
    if study is not None and not faults:
        told["values"] = study.to_plain()
        told["about"] = {
            "name": study.name,
            "parameters": len(study.search),
            "trials": study.search_trials,
            "confirm": study.confirm_runs,
            "sampler": study.sampler.name,
            "scheduler": study.scheduler.name,
        }
    return told


def _not_here(text: str, study: StudyConfig, store: str) -> Iterator[Fault]:
    """What a file may say on one's own machine, but not to a service, which writes into its own store."""
    usual = StudyConfig(name=study.name)
    lines = parse(text, FILE)[1]

    def fault(place: KeyPath, problem: str) -> Fault:
        return Fault(where_in(place, FILE, lines), problem, "leave it out")

    if study.storage.optuna is not None:
        yield fault(("storage", "optuna"), "the service keeps the sampler's history beside the results")
    if study.storage.store not in (usual.storage.store, store):
        yield fault(("storage", "store"), "the service keeps results in its own store")
    if study.data.root != usual.data.root:
        yield fault(("data", "root"), "the service keeps downloads in a folder of its own")


def _earlier_study_faults(text: str, study: StudyConfig, store: str) -> Iterator[Fault]:
    """What its driver would refuse of the studies in the service's store that are to guide it."""
    if not study.search_from:
        return
    from cbe.study.search.earlier_studies import faults

    lines = parse(text, FILE)[1]
    for fault in faults(study, Store.open(store)):
        yield replace(fault, where=where_in(tuple(fault.where.split(".")), FILE, lines))


def require_seen(study: StudyConfig, folder: Path) -> None:
    """Refuses images that are not on this machine, where drivers work in `folder`.

    Asked at submission alone: a reader must not learn which files the machine has.
    """
    path = study.data.path
    if not path or "://" in path:
        return
    try:
        seen = (folder / os.path.expanduser(path)).exists()
    except (OSError, ValueError):  # a name that no file can have
        seen = False
    if not seen:
        hint = "give a folder or file on its machine, or Parquet in a bucket, as s3://bucket/prefix"
        raise ConfigError([Fault("data.path", f"the service cannot see {path}", hint)])


def plain_fault(fault: Fault) -> dict[str, Any]:
    """A fault with its line and its key, to be shown beside the text."""
    found = _WHERE.fullmatch(fault.where)
    line, key = (found[1], found[2]) if found else (None, fault.where)
    return {
        "where": fault.where,
        "line": int(line) if line else None,
        "key": key,
        "problem": fault.problem,
        "hint": fault.hint,
    }


def config_error(faults: list[dict[str, Any]]) -> ConfigError:
    """The error that such faults are told by."""
    return ConfigError([Fault(each["where"], each["problem"], each["hint"]) for each in faults])


def plan(values: Mapping[str, Any], concurrent: int) -> dict[str, Any]:
    """What a study will take, by a probe on this machine; in steps alone where it wants GPUs and has none."""
    import torch

    from cbe.study.budget.plan import measure
    from cbe.study.budget.plan import plan as planned

    study = StudyConfig.model_validate(values)
    here = torch.cuda.is_available()
    if study.resources.gpus and not here:
        return {**planned(study, concurrent=concurrent).to_plain(), "note": _NO_GPU}
    note = None if here or study.resources.gpus == 0 else "Measured on a CPU of the service's machine."
    torch.set_num_threads(1)
    return {**planned(study, concurrent=concurrent, probe=measure(study)).to_plain(), "note": note}


def sql(store: str, query: str, study: str | None, timeout_s: float, most: int) -> dict[str, Any]:
    """The answer to one SELECT, its first rows where there are many."""
    from cbe.report.results import Results

    found = Results(Store.open(store)).sql(query, study, timeout_s)
    some = found.slice(0, most)
    columns = [_values(name, column) for name, column in zip(some.column_names, some.columns, strict=True)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"columns": found.column_names, "rows": rows, "truncated": len(found) > most}


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """A column's values; as texts where Python has none, as of a date in the year 290000."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        try:
            values = column.cast(pa.string()).to_pylist()
        except pa.ArrowException:
            raise InputError(f"SQL: {name} holds what cannot be told; cast it to varchar") from None
    return values


def metrics(store: str, name: str, trial: str | None, limit: int, offset: int) -> dict[str, Any]:
    """Some reports of a study's trials, or of one trial, in the order of trials and steps."""
    chosen = pc.field("trial") == trial if trial else None
    table = Store.open(store).study(name).table("metrics", where=chosen).drop_columns(["study", "revision"])
    ordered = table.sort_by([("trial", "ascending"), ("step", "ascending")])
    return {"total": len(table), "metrics": [_times(row) for row in ordered.slice(offset, limit).to_pylist()]}


def _times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def best(store: str, name: str, k: int, where: str) -> dict[str, Any]:
    """The best configs of a study among those that meet a condition in SQL."""
    from cbe.report.best import best as best_of

    return best_of(Store.open(store).study(name), k, where=where).to_plain()


def best_of_all(store: str, k: int, where: str | None) -> dict[str, Any]:
    """The best configs of all studies, for each set of images and labels."""
    from dataclasses import asdict

    from cbe.report.across import best_of_all as best_of_each

    return {"tasks": [asdict(task) for task in best_of_each(Store.open(store), k, where)]}


def report(store: str, name: str) -> bytes:
    """The self-contained report."""
    from cbe.report.page.render import render

    return render(Store.open(store).study(name)).encode()


def page(store: str, name: str) -> dict[str, Any]:
    """The report's parts, for a page that updates itself."""
    from cbe.report.page.live import live_page

    return live_page(Store.open(store).study(name))
