"""Files that a reader sees whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def name_aside(name: str) -> str:
    """What a file is called while it is in the making, beside the one that it becomes."""
    return f".{name}.{uuid.uuid4().int}"


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file aside, makes it durable and renames it; whatever fails, the old one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(name_aside(path.name))
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
