"""With what a trial was made: versions and the commit of the code."""

from __future__ import annotations

import json
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import cbe


@cache
def provenance() -> dict[str, str | None]:
    packages = ("ray", "torch", "torchvision", "optuna", "pyarrow", "numpy")
    versions = {"cbe": cbe.__version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in packages}
    return {"versions": json.dumps(versions), "git_commit": _commit()}


def _commit() -> str | None:
    """The checkout's commit, with a + where files differ from it; None where the package is not one."""
    here = Path(cbe.__file__).parent

    def git(*command: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *command], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        if git("ls-files", "--error-unmatch", "__init__.py") != "__init__.py":
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
