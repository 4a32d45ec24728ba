"""A cluster that grows, on one machine: Ray's own autoscaler over pretend machines with pretend cards."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbe.cluster.limits import VARIABLE
from cbe.processes import session
from tests.conftest import free_port
from tests.waiting import until

HEAD_ID = "f" * 51 + "00000"
IDLE_S = 6.0
PROVIDER = "tests.cluster.refusing.RefusingProvider"
ROOT = Path(__file__).parent.parent.parent


def forget_ray() -> None:
    """Other tests may have left one running in this process, and Ray keeps the token that it saw first."""
    import cbe.environment  # noqa: F401  before Ray

    # isort: split
    import ray
    from ray._private.authentication_test_utils import reset_auth_token_state

    ray.shutdown()
    reset_auth_token_state()


class Growing:
    """A head without room for trials, and groups of machines from none on."""

    def __init__(self, groups: dict[str, dict[str, Any]], idle_s: float = IDLE_S) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cbe-", dir="/tmp"))  # short, for Ray's sockets
        self.address = f"127.0.0.1:{free_port()}"
        self.refuses = self.folder / "refuses"  # is there while no spot machine is to be had
        file = self.folder / "cluster.yaml"
        file.write_text(yaml.safe_dump(self._config(groups, idle_s)))
        token = self.folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        os.environ |= {"RAY_AUTH_TOKEN_PATH": str(token), VARIABLE: str(file)}  # as on its head
        forget_ray()
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),  # Ray's monitor finds the provider there
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "10000",  # a killed one refuses at once, a busy one is slow
            "RAY_health_check_failure_threshold": "3",
            "RAY_worker_niceness": "0",  # else trials wait for as long as other tests have the cores
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        command = [
            *(
                str(Path(sys.executable).with_name("ray")),
                "start",
                "--head",
                "--block",
                "--disable-usage-stats",
            ),
            *("--node-ip-address=127.0.0.1", f"--port={self.address.rpartition(':')[2]}", "--num-cpus=0"),
            *("--include-dashboard=false", f"--temp-dir={self.folder / 'ray'}", "--min-worker-port=0"),
            *(f"--autoscaling-config={file}", "--max-worker-port=0", "--object-store-memory=200000000"),
        ]
        self.log = self.folder / "head.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

        try:
            until(self._answers, 180, "the head")
        except BaseException:
            self.end()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "Ray runtime started" in self.log.read_text()

    def _config(self, groups: dict[str, dict[str, Any]], idle_s: float) -> dict[str, Any]:
        kinds = {
            name: {
                "resources": {"object_store_memory": 100_000_000, **group["resources"]},
                "node_config": {},
                "min_workers": 0,
                "max_workers": group["most"],
                "labels": {},
                "priority": group["priority"],
            }
            for name, group in groups.items()
        }
        head = {"resources": {"CPU": 0}, "node_config": {}, "min_workers": 0, "max_workers": 0, "labels": {}}
        return {
            "cluster_name": "growing",
            "max_workers": sum(group["most"] for group in groups.values()),
            "idle_timeout_minutes": idle_s / 60,
            "upscaling_speed": 100.0,
            "provider": {
                **{"type": "external", "module": PROVIDER, "gcs_address": self.address},
                **{"head_node_id": HEAD_ID, "launch_multiple": True, "disable_node_updaters": True},
                **{"disable_launch_config_check": True, "refuses": str(self.refuses)},
            },
            "auth": {},
            "docker": {},
            "available_node_types": {"ray.head.default": head, **kinds},
            "head_node_type": "ray.head.default",
            **{name: {} for name in ("file_mounts",)},
            **{"cluster_synced_files": [], "file_mounts_sync_continuously": False},
            **{name: [] for name in ("rsync_exclude", "rsync_filter", "initialization_commands")},
            **{name: [] for name in ("setup_commands", "head_setup_commands", "worker_setup_commands")},
            **{name: [] for name in ("head_start_ray_commands", "worker_start_ray_commands")},
        }

    def nodes(self) -> dict[str, int]:
        """The machines beside the head that live: the process of each."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[0].endswith("/raylet") and any(self.address in word for word in words):
                    variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                    known = dict(each.partition("=")[::2] for each in variables)
                    name = known.get("RAY_OVERRIDE_NODE_ID_FOR_TESTING", HEAD_ID)
                    if name != HEAD_ID:
                        found[name] = int(entry.name)
        return found

    def end(self) -> None:
        for pid in session(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        del os.environ["RAY_AUTH_TOKEN_PATH"], os.environ[VARIABLE]
        forget_ray()


def group(most: int, priority: int = 0, **has: float) -> dict[str, Any]:
    """How many machines at most, and what each has."""
    return {"most": most, "priority": priority, "resources": {"CPU": 1, **has}}


@pytest.fixture(scope="package")
def cards() -> Iterator[Growing]:
    """Machines with a card of 16 GB or of 80 GB, and one with something rare: on spot, else on demand."""
    found = Growing(
        {
            "small": group(3, GPU=1, gpu_16gb=1),
            "large": group(2, GPU=1, gpu_16gb=1, gpu_80gb=1),
            "spot": group(1, priority=1, rare=1),
            "on_demand": group(1, rare=1),
        }
    )
    try:
        yield found
    finally:
        found.end()
