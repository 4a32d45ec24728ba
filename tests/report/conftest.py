"""What tests of reports share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.written import Written


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "results")
