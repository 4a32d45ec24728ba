"""Checkpoints: written aside and renamed, read without unpickling anything but tensors and plain values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from cbe.errors import CheckpointError

VERSION = 1


def save(state: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint so that a reader sees the old one or the new one, whole, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            torch.save({"version": VERSION, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except (OSError, RuntimeError) as error:  # torch's zip writer turns a full disk into a RuntimeError
        aside.unlink(missing_ok=True)
        reason = (error.__cause__ or error.__context__ or error) if isinstance(error, RuntimeError) else error
        kept = "the previous checkpoint is kept" if path.exists() else "there is no earlier checkpoint"
        raise CheckpointError(
            f"{path}: could not write the checkpoint ({str(reason).splitlines()[0]}); {kept}; "
            "free some space and go on with --resume"
        ) from error


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads a checkpoint."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no checkpoint to resume; start without --resume") from None
    except Exception as error:  # torch raises whatever its zip reader and unpickler raise
        raise CheckpointError(
            f"{path}: not a readable checkpoint ({type(error).__name__}); start without --resume"
        ) from error
    if not isinstance(state, dict) or state.get("version") != VERSION:
        found = state.get("version") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(f"{path}: checkpoint version {found}, wanted {VERSION}; start without --resume")
    return state
