"""`cluster/local.yaml`: this machine, brought up and down by the commands that its head tells."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import free_port
from tests.waiting import until

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the file, at a port that is free."""
    text = (ROOT / "cluster/local.yaml").read_text("utf-8")
    (tmp_path / "local.yaml").write_text(text.replace("8321", str(free_port())))
    return tmp_path


def cluster(verb: str, place: Path) -> str:
    command = [Path(sys.executable).with_name("cbe"), "cluster", verb, "local.yaml"]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=180).stdout


def processes(place: Path) -> list[int]:
    """Those that work in a folder, as the service does, and Ray for it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(entry / "cwd")) == place:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_this_machine_is_brought_up_and_down(place: Path) -> None:
    assert "does not run" in cluster("status", place)
    try:
        told = cluster("up", place)
        url = re.match(r"(http://127\.0\.0\.1:\d+), as process \d+", told)
        assert url, told
        assert httpx.get(f"{url[1]}/healthz").status_code == 200
        assert f"{url[1]} answers" in cluster("status", place)
        assert "runs already" in cluster("up", place)
        assert processes(place)
    finally:
        down = cluster("down", place)
    assert down == f"{url[1]} is down\n"
    until(lambda: not processes(place), what="the end of all processes")
    assert "does not run" in cluster("down", place)
    assert not (place / "results/local-cluster.json").exists()
