"""With what a trial was made: versions and the commit of the code."""

from __future__ import annotations

import hashlib
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
    """The checkout's commit; None where the package is not one.

    Where files differ from it, a + and a digest of all files follow.
    """
    here = Path(cbe.__file__).parent

    def git(*command: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *command], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        if git("ls-files", "--error-unmatch", "__init__.py") != "__init__.py":
            return None
        changed = f"+{_digest(here)}" if git("status", "--porcelain", "--", ".") else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return None


def _digest(package: Path) -> str:
    content = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return content.hexdigest()[:8]
