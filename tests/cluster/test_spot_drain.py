"""The watcher of spot machines, against real HTTP servers that speak as the clouds' metadata services do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cbe.cluster.spot_drain import CLOUDS, GONE_S, SpotNotice, watch

Answer = tuple[int, str]
Answers = Callable[[str, str, dict[str, str]], Answer]


@pytest.fixture
def metadata() -> Iterator[Callable[[Answers], str]]:
    """A server that answers as it is told; its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answers: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                code, text = answers(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = _answer

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def in_seconds(seconds: int) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def ec2(action: str | None) -> Answers:
    """EC2's service, version 2: no answer without a token."""

    def answers(method: str, path: str, headers: dict[str, str]) -> Answer:
        if (method, path) == ("PUT", "/latest/api/token"):
            return (200, "T0K3N") if headers.get("x-aws-ec2-metadata-token-ttl-seconds") else (400, "")
        if headers.get("x-aws-ec2-metadata-token") != "T0K3N":
            return 401, ""
        if path == "/latest/meta-data/spot/instance-action" and action:
            return 200, action
        return 404, ""

    return answers


def compute_engine(preempted: str) -> Answers:
    def answers(method: str, path: str, headers: dict[str, str]) -> Answer:
        if headers.get("metadata-flavor") != "Google":
            return 403, ""
        return (200, preempted) if path == "/computeMetadata/v1/instance/preempted" else (404, "")

    return answers


def scheduled_events(*events: dict[str, object]) -> Answers:
    def answers(method: str, path: str, headers: dict[str, str]) -> Answer:
        if headers.get("metadata") != "true" or not path.startswith("/metadata/scheduledevents?api-version="):
            return 400, ""
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": list(events)})

    return answers


QUIET = {
    "aws": ec2(None),
    "gcp": compute_engine("FALSE"),
    "azure": scheduled_events({"EventId": "1", "EventType": "Reboot", "NotBefore": ""}),
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_that_stays_has_no_notice(cloud: str, metadata: Callable[[Answers], str]) -> None:
    assert CLOUDS[cloud](metadata(QUIET[cloud])) is None


def taken_back(cloud: str) -> Answers:
    if cloud == "aws":
        return ec2(
            json.dumps({"action": "terminate", "time": in_seconds(120).strftime("%Y-%m-%dT%H:%M:%SZ")})
        )
    if cloud == "gcp":
        return compute_engine("TRUE")
    event = {"EventType": "Preempt", "NotBefore": format_datetime(in_seconds(40), usegmt=True)}
    return scheduled_events({"EventType": "Freeze", "NotBefore": ""}, event)


@pytest.mark.parametrize(("cloud", "seconds"), [("aws", 120), ("gcp", GONE_S), ("azure", 40)])
def test_a_notice_says_how_long_there_is(
    cloud: str, seconds: int, metadata: Callable[[Answers], str]
) -> None:
    notice = CLOUDS[cloud](metadata(taken_back(cloud)))
    assert notice and notice.seconds == pytest.approx(seconds, abs=5)


def test_an_eviction_that_has_begun_has_no_time_any_more(metadata: Callable[[Answers], str]) -> None:
    url = metadata(scheduled_events({"EventType": "Preempt", "NotBefore": ""}))
    assert CLOUDS["azure"](url) == SpotNotice("Azure evicts it", GONE_S)


def test_the_watch_outlasts_a_service_that_fails(metadata: Callable[[Answers], str]) -> None:
    asked: list[str] = []

    def answers(method: str, path: str, headers: dict[str, str]) -> Answer:
        asked.append(path)
        if len(asked) <= 3:
            return [(500, ""), (200, "T0K3N"), (200, "no JSON")][len(asked) - 1]
        return taken_back("aws")(method, path, headers)

    assert watch("aws", metadata(answers), poll_s=0.01).seconds > 100
    assert len(asked) == 5


def test_a_machine_without_a_ray_node_cannot_be_drained(metadata: Callable[[Answers], str]) -> None:
    """The program as a worker starts it; tests/cluster has it drain a real node."""
    over = json.dumps({"action": "terminate", "time": in_seconds(0).strftime("%Y-%m-%dT%H:%M:%SZ")})
    url = metadata(ec2(over))
    command = [sys.executable, "-m", "cbe.cluster.spot_drain", "aws", "127.0.0.1:1", f"--metadata={url}"]
    ran = subprocess.run([*command, "--poll=0.01"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "AWS will terminate it in 0 s: draining\n")


def test_the_watcher_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import cbe.cluster.spot_drain;"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(names - set(sys.stdlib_module_names) - {'cbe'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[]"
