"""`cbe check`: whether files can be run, what they ask for, and what they find in their data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cbe.cli import stores
from cbe.cli.data import data_summary
from cbe.errors import ConfigError, DataError, Fault, InputError
from cbe.spec import STUDY_KEYS, StudyConfig, TrainConfig, read_config
from cbe.spec.files import line_of, read_keys
from cbe.words import clean, plural


def command(
    files: Annotated[list[Path], typer.Argument(help="Study or training files (YAML).")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value in all files: key=value. May be repeated."),
    ] = None,
    store: stores.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check study and training files, and look at their data and earlier studies, without training."""
    found: list[dict[str, Any]] = []
    faults: list[Fault] = []
    for file in files:
        try:
            config = read(file, settings or ())
            unfit = _earlier_study_faults(config, store)
            faults += unfit
            about = describe(file, config) | _data(file, config)
            found += [] if unfit else [about]
        except ConfigError as error:
            faults += error.faults
        except InputError as error:
            where, _, problem = str(error).partition(": ")
            faults.append(Fault(where, problem))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            print("\n  ".join(map(clean, _lines(each))))
    if faults:
        raise ConfigError(faults)


def read(file: Path, settings: Sequence[str] = ()) -> TrainConfig | StudyConfig:
    """The config of a study or training file; ConfigError where it cannot be run."""
    keys = read_keys(file)
    if not keys and not settings:
        raise InputError(f"{file}: is empty; write `key: value` lines, as in studies/quickstart.yaml")
    if keys & STUDY_KEYS:
        return read_config(StudyConfig, file, settings)
    return read_config(TrainConfig, file, settings)


def describe(file: Path, config: TrainConfig | StudyConfig) -> dict[str, Any]:
    """What a file asks for."""
    if isinstance(config, TrainConfig):
        names = {"method": config.method.name, "ensemble": config.ensemble.kind, "model": config.model.name}
        return {"file": str(file), "kind": "training", **names, "steps": config.training.steps}
    return {
        "file": str(file),
        "kind": "study",
        "name": config.name,
        "parameters": len(config.search),
        "trials": config.search_trials,
        "confirm": config.confirm_runs,
        "sampler": config.sampler.name,
        "scheduler": config.scheduler.name,
    }


def _earlier_study_faults(config: TrainConfig | StudyConfig, store: str | None) -> Sequence[Fault]:
    """What `cbe run` would refuse of the studies in the store that are to guide this one."""
    if isinstance(config, TrainConfig) or not config.search_from:
        return ()
    from cbe.study.search.earlier_studies import faults

    return faults(config, stores.opened(store, config.storage.store))


def _data(file: Path, config: TrainConfig | StudyConfig) -> dict[str, Any]:
    try:
        return data_summary(config).to_plain()
    except DataError as error:
        where, _, problem = str(error).partition(": ")
        known = where.startswith("data.")
        fault = Fault(line_of(file, where), problem) if known else Fault(str(file), str(error))
        raise ConfigError([fault]) from None


def _lines(of: dict[str, Any]) -> list[str]:
    lines = [of["data"]["sentence"], *of["data"]["warnings"]] if of["data"] else [of["note"]]
    return [_line(of), *lines, *of["warnings"]]


def _line(of: dict[str, Any]) -> str:
    if of["kind"] == "training":
        made = f"{of['method']}, {of['ensemble']}, {of['model']}"
        return f"{of['file']}: training: {made}, {plural(of['steps'], 'step')}"
    searched = f"{plural(of['parameters'], 'parameter')} searched"
    most = "at most " if of["sampler"] == "grid" else ""  # the fixed trials may be points of it
    trials = f"{most}{plural(of['trials'], 'trial')} + {of['confirm']} to confirm"
    means = f"sampler {of['sampler']}, scheduler {of['scheduler']}"
    return f"{of['file']}: study {of['name']}: {searched}, {trials}, {means}"
