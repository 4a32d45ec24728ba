from __future__ import annotations

from pathlib import Path

import pytest

from cbe.store.folder import Store, StudyFolder


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return Store.open(str(tmp_path / "results")).study("first")
