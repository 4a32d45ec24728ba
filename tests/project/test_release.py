"""What a release says of itself agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import cbe

ROOT = Path(__file__).parent.parent.parent


def test_the_version_is_written_in_one_place_and_the_citation_agrees() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cbe.__version__"}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == cbe.__version__


def test_the_changelog_has_an_entry_for_this_version() -> None:
    entries = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert entries[:2] == ["Unreleased", cbe.__version__]
