"""Spot machines under Ray's own autoscaler: refused ones are replaced, and one with a notice is drained."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cbe.cluster.notice import node_ids
from tests.cluster.conftest import Growing
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
CARD = {"CPU": 1, "GPU": 1}


class Spot(Growing):
    """A group of spot machines and one on demand; the file `refuses` is there while spot is not to be had."""

    def _config(self, groups: dict[str, dict[str, Any]], idle_s: float) -> dict[str, Any]:
        config = super()._config(groups, idle_s)
        self.refuses = self.folder / "refuses"
        config["provider"] |= {
            "module": "tests.cluster.refusing.RefusingProvider",
            "refuses": str(self.refuses),
        }
        config["available_node_types"]["spot"]["priority"] = 1
        return config

    def told(self) -> dict[str, list[str]]:
        """How it stands, as a process with its token is told; nothing where there is no answer."""
        told = subprocess.run(
            [sys.executable, "-c", ASK, self.address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        found: dict[str, list[str]] = json.loads(told.stdout) if told.returncode == 0 else {}
        return found

    def asked(self, what: str) -> list[str]:
        return self.told().get(what, [])


# The token is kept by a process for good, and tests before these had another.
ASK = """
import json, sys
from ray._raylet import GcsClient
from ray.autoscaler.v2.sdk import get_cluster_resource_state, get_cluster_status
from ray.core.generated.autoscaler_pb2 import NodeStatus

status = get_cluster_status(sys.argv[1])
states = get_cluster_resource_state(GcsClient(sys.argv[1])).node_states
print(json.dumps({
    "groups": [node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)],
    "refused": [launch.ray_node_type_name for launch in status.failed_launches],
    "draining": [node.node_id.hex() for node in states if node.status == NodeStatus.DRAINING],
}))
"""


@pytest.fixture
def spot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spot]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # Ray's monitor finds the provider there
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    found = Spot({name: {"most": 1, "resources": CARD} for name in ("spot", "on_demand")})
    try:
        until(found.told, what="an answer of the head")
        yield found
    finally:
        found.end()


@contextmanager
def demand(cluster: Spot) -> Iterator[None]:
    """Somebody who wants one card."""
    code = (
        "import ray, sys, time\n"
        "ray.init(address=sys.argv[1], log_to_driver=False)\n"
        "ray.get(ray.remote(num_gpus=1)(lambda: time.sleep(600)).remote())\n"
    )
    command = [sys.executable, "-c", code, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def fallback(cluster: Spot) -> Iterator[None]:
    """The program as the head starts it."""
    command = [sys.executable, "-m", "cbe.cluster.fallback", cluster.folder / "cluster.yaml", cluster.address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_refused_spot_machine_is_replaced_by_one_on_demand(spot: Spot) -> None:
    spot.refuses.touch()
    with demand(spot):
        # What Ray does by itself: it asks for spot, and again, and never for the other.
        until(lambda: spot.asked("refused").count("spot") >= 3, what="refused launches")
        assert "on_demand" not in until(spot.told, what="an answer of the head")["groups"]
        with fallback(spot):
            until(lambda: "on_demand" in spot.asked("groups"), what="a machine on demand")


def test_a_notice_drains_the_node_of_the_machine(spot: Spot) -> None:
    with demand(spot), preempted() as metadata:
        until(lambda: "spot" in spot.asked("groups"), what="a spot machine")
        (node,) = node_ids(spot.address)
        command = [sys.executable, "-m", "cbe.cluster.notice", "aws", spot.address, f"--metadata={metadata}"]
        subprocess.run(command, check=True, timeout=180)
        assert until(lambda: spot.asked("draining"), what="a node that drains") == [node]


@contextmanager
def preempted() -> Iterator[str]:
    """A metadata service that says so, long enough before for the node to be seen as it drains."""
    later = datetime.now(UTC) + timedelta(minutes=10)
    action = {"action": "terminate", "time": f"{later:%Y-%m-%dT%H:%M:%SZ}"}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.answer(b"a token")

        def do_GET(self) -> None:
            self.answer(json.dumps(action).encode())

        def answer(self, content: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
