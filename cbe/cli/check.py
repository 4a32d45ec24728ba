"""`cbe check`: whether files can be run, and what they ask for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cbe.errors import ConfigError, Fault, InputError
from cbe.spec import StudyConfig, TrainConfig, read_config
from cbe.spec.files import read_keys

PRESETS = 2  # the paper's config and the one without an ensemble are confirmed too


def command(
    files: Annotated[list[Path], typer.Argument(help="Study or training files (YAML)")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value in all of them; may be repeated")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list for a program")] = False,
) -> None:
    """Check study and training files without running them."""
    found: list[dict[str, Any]] = []
    faults: list[Fault] = []
    for file in files:
        try:
            found.append(describe(file, settings or ()))
        except ConfigError as error:
            faults += error.faults
        except InputError as error:
            where, _, problem = str(error).partition(": ")
            faults.append(Fault(where, problem))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            print(_line(each))
    if faults:
        raise ConfigError(faults)


def describe(file: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """What a file asks for; ConfigError where it cannot be run."""
    keys = read_keys(file)
    if not keys and not settings:
        raise InputError(f"{file}: is empty; write `key: value` lines, as in studies/quickstart.yaml")
    if not keys & (StudyConfig.model_fields.keys() - TrainConfig.model_fields.keys()):
        config = read_config(TrainConfig, file, settings)
        names = {"method": config.method.name, "ensemble": config.ensemble.kind, "model": config.model.name}
        return {"file": str(file), "kind": "training", **names, "steps": config.training.steps}
    study = read_config(StudyConfig, file, settings)
    return {
        "file": str(file),
        "kind": "study",
        "name": study.name,
        "parameters": len(study.search),
        "trials": study.trials,
        "confirm": len(study.confirm_pairs) * (study.confirm.configs + PRESETS),
        "sampler": study.sampler.name,
        "scheduler": study.scheduler.name,
    }


def _line(of: dict[str, Any]) -> str:
    if of["kind"] == "training":
        return (
            f"{of['file']}: training: {of['method']}, {of['ensemble']}, {of['model']}, {of['steps']:,} steps"
        )
    searched = f"{of['parameters']} parameter{'' if of['parameters'] == 1 else 's'} searched"
    most = "at most " if of["sampler"] == "grid" else ""  # the fixed trials may be points of it
    trials = f"{most}{of['trials']} trials + {of['confirm']} to confirm"
    means = f"sampler {of['sampler']}, scheduler {of['scheduler']}"
    return f"{of['file']}: study {of['name']}: {searched}, {trials}, {means}"
