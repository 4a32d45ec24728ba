"""`cbe train`: one model, watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cbe.errors import InputError
from cbe.spec import STUDY_KEYS, TrainConfig, read_config
from cbe.spec.files import read_keys


def command(
    file: Annotated[Path | None, typer.Argument(help="A training file (YAML).")] = None,
    method: Annotated[str | None, typer.Option(help="SSL method, e.g. fixmatch.")] = None,
    ensemble: Annotated[str | None, typer.Option(help="Ensemble, e.g. channel or single.")] = None,
    model: Annotated[str | None, typer.Option(help="Network, e.g. wrn-28-2.")] = None,
    data: Annotated[str | None, typer.Option(help="Data source, e.g. digits.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value, e.g. training.steps=500. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/NAME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint of the run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train one model and show its errors."""
    from cbe.store.run_folder import RunFolder

    sections = {"method": method, "ensemble": ensemble, "model": model, "data": data}
    given = [name for name in sections.values() if name]
    folder = RunFolder(out or Path("runs") / (file.stem if file else "-".join(given) or "default"))
    if file and read_keys(file) & STUDY_KEYS:
        raise InputError(
            f"{file}: is a study file; run it with `cbe run {file}`, or train one config: "
            "`cbe best STUDY --yaml` writes the file of one"
        )
    base = file or (folder.config_path() if resume else None)
    config = read_config(TrainConfig, base, settings or (), sections)
    summary = run(config, folder, resume=resume)
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        from cbe.cli.progress.training import print_summary

        print_summary(summary)


def run(config: TrainConfig, folder: Any, *, resume: bool) -> dict[str, Any]:
    """Trains into a folder and returns the summary."""
    from cbe.cli.progress.training import Screen
    from cbe.data import open_dataset
    from cbe.report.chance import at_chance
    from cbe.ssl import resolve
    from cbe.training import threads
    from cbe.training.device import choose
    from cbe.training.loop import Snapshot, train

    config = resolve(config)
    mode = choose(config.training)  # a device that is not there is told before anything is written
    with Screen(config, folder.path) as screen:
        dataset = open_dataset(config.data, progress=screen.say)
        if resume:
            folder.check(config.to_plain(), dataset.split.digest)
        else:
            folder.create(config.to_plain(), dataset.split.to_plain())
        screen.describe(dataset)
        if mode.device.type == "cpu" and (advice := threads.advice()):
            screen.say(advice)

        def report(metrics: dict[str, Any], snapshot: Snapshot) -> None:
            # Metrics first: a crash in between repeats the steps since the checkpoint and replaces the row.
            folder.add(metrics)
            snapshot.save(folder.checkpoint)
            screen.saved(metrics["step"])

        # A run that ended before its first checkpoint starts again.
        start = folder.checkpoint if resume and folder.checkpoint.exists() else None
        summary = train(config, dataset, report, resume_from=start, progress=screen.progress)
    chance = at_chance(summary.last["validation_error"], len(dataset.classes), len(dataset.validation))
    result = {
        "folder": str(folder.path),
        "split": dataset.split.digest,
        **summary.to_plain(),
        "at_chance": chance,
    }
    folder.finish(result)
    return result
