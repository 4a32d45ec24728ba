"""Checkpoints: written aside and renamed, read without unpickling anything but tensors and plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cbe.errors import CheckpointError
from cbe.files import replace_file

VERSION = 1


def save(state: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint so that a reader sees the old one or the new one, whole, whatever happens."""
    try:
        replace_file(path, lambda file: torch.save({"version": VERSION, **state}, file))
    except (OSError, RuntimeError) as error:  # torch's zip writer turns a full disk into a RuntimeError
        reason = (error.__cause__ or error.__context__ or error) if isinstance(error, RuntimeError) else error
        kept = "the previous checkpoint is kept" if path.exists() else "there is no earlier checkpoint"
        raise CheckpointError(
            f"{path}: could not write the checkpoint ({str(reason).splitlines()[0]}); {kept}; "
            "free some space and go on with --resume",
            retry=True,
        ) from error


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint into memory."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: there is no checkpoint to resume; start anew with another --out"
        ) from None
    except Exception as error:  # torch raises whatever its zip reader and unpickler raise
        raise CheckpointError(
            f"{path}: not a readable checkpoint ({type(error).__name__}); delete it to start the run again"
        ) from error
    if not isinstance(state, dict) or state.get("version") != VERSION:
        found = state.get("version") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(
            f"{path}: checkpoint version {found}, wanted {VERSION}; start anew with another --out"
        )
    return state
