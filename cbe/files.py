"""Files that a reader sees whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def name_aside(name: str) -> str:
    """What a file is called while it is in the making, beside the one that it becomes."""
    return f".{name}.{uuid.uuid4().int}"


@contextmanager
def _written_aside(path: Path, write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    """A durable file beside the one that it may become; what is left of it at the end goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(name_aside(path.name))
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file aside, makes it durable and renames it; whatever fails, the old one stays."""
    with _written_aside(path, write) as aside:
        aside.replace(path)


def create_file(path: Path, write: Callable[[BinaryIO], object]) -> bool:
    """Writes a whole file where there is none; False where there is one. Of several at once one succeeds.

    Where the file system has no hard links, two at the very same moment may both believe it.
    """
    with _written_aside(path, write) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():
                return False
            aside.replace(path)
    return True
