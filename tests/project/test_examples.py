"""Every example in a docstring does what it says."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import cbe

ROOT = Path(cbe.__file__).parent
MODULES = sorted(
    ".".join(("cbe", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
