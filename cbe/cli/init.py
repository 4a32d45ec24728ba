"""`cbe init`: a first study file."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.spec.files import read_config_text


def command(
    folder: Annotated[
        Path | None,
        typer.Argument(help="A folder of images. Without it, the file uses handwritten digits."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The study file to write.")] = Path("study.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a commented study file that fits a folder of images."""
    import torch

    from cbe.cli.console import say
    from cbe.data.starter import scan_folder, study_name, study_text

    if out.exists() and not force:
        raise InputError(f"{out}: exists already; choose another --out, or overwrite it with --force")
    if not out.parent.is_dir():
        raise InputError(f"{out}: there is no folder {out.parent}; make it, or choose another --out")
    found = scan_folder(folder) if folder else None
    path = _path(folder, out) if folder else ""
    text = study_text(study_name(folder) if folder else "digits", found, path, gpu=torch.cuda.is_available())
    read_config_text(StudyConfig, text, name=str(out))
    out.write_text(text, "utf-8")
    file = shlex.quote(str(out))
    say(f"Wrote {out}. Next:\n  cbe check {file}\n  cbe plan {file}\n  cbe run {file}")


def _path(folder: Path, out: Path) -> str:
    """The folder as seen from the study file; in full where it is not below that."""
    whole, above = folder.resolve(), out.parent.resolve()
    return os.path.relpath(whole, above) if whole.is_relative_to(above) else str(whole)
