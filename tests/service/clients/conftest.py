"""What tests of clients share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CBE_ADDRESS", "CBE_TOKEN", "CBE_INSECURE", "CBE_STORE"):
        monkeypatch.delenv(name, raising=False)
