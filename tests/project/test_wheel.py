"""A wheel holds all of the package: whoever has no checkout has everything that commands read."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_file_of_the_package_that_is_no_python_goes_into_the_wheel() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    patterns = built["package-data"]["cbe"]
    files = [path for path in (ROOT / "cbe").rglob("*") if path.is_file()]
    names = [str(path.relative_to(ROOT / "cbe")) for path in files if path.suffix not in (".py", ".pyc")]
    assert "py.typed" in names
    assert [name for name in names if not any(fnmatch.fnmatch(name, each) for each in patterns)] == []
