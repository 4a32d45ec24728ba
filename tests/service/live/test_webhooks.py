"""Notices: what a real server receives, what is tried again, and that no address is ever told."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from cbe import __version__
from cbe.errors import InputError
from cbe.service.live.webhooks import Notice, Webhooks, parse_target
from tests.conftest import free_port

SECRET = "T0SECRET0B1"
TIME = datetime(2026, 5, 4, 12, tzinfo=UTC)
DONE = Notice(
    event="finished",
    study="pets",
    state="finished",
    sentence="4 heads are best: 5 % < 7 % & falling.",
    metric="validation_error",
    best=0.05,
    url="https://cbe.example/#pets&x=1",
    time=TIME,
)


class Hook:
    """A webhook on this machine that answers as it is told, 200 at last."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.silent = threading.Event()  # set: it takes a request and says nothing
        self.over = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                hook.paths.append(self.path)
                hook.headers.append(dict(self.headers.items()))
                hook.got.append(json.loads(content))
                if hook.silent.is_set():
                    hook.over.wait(30)
                    self.close_connection = True
                    return
                status, headers = hook.answers.pop(0) if hook.answers else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}?key={SECRET}"

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between a test and its own server."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def waited() -> list[float]:
    return []


@contextmanager
def raw(*chunks: bytes) -> Iterator[str]:
    """A server that is no web server: says these chunks to whoever comes, the last again and again."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.01)

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                try:
                    for chunk in chunks:
                        connection.sendall(chunk)
                    while chunks[1:] and not over.wait(0.02):
                        connection.sendall(chunks[-1])
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/{SECRET}"
    finally:
        over.set()
        thread.join()
        listener.close()


def test_a_webhook_receives_the_notice(hook: Hook) -> None:
    assert Webhooks([hook.url]).send(DONE) == []
    assert hook.got == [
        {
            "event": "finished",
            "study": "pets",
            "state": "finished",
            "reason": None,
            "sentence": "4 heads are best: 5 % < 7 % & falling.",
            "metric": "validation_error",
            "best": 0.05,
            "url": "https://cbe.example/#pets&x=1",
            "time": "2026-05-04T12:00:00+00:00",
        }
    ]
    assert hook.paths == [f"/services/{SECRET}?key={SECRET}"]
    (headers,) = hook.headers
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"cbe-studies/{__version__}"


def test_slack_receives_a_text_in_its_own_escapes(hook: Hook) -> None:
    webhooks = Webhooks([f"slack:{hook.url}"])
    assert webhooks.send(DONE) == []
    failed = Notice(
        "failed", "pets", "failed", reason="<!channel> lost & gone\nmore", metric="macs", best=5e6
    )
    assert webhooks.send(failed) == []
    assert webhooks.send(Notice("budget", "pets", "stopped")) == []
    assert hook.got == [
        {
            "text": "pets has finished\n4 heads are best: 5 % &lt; 7 % &amp; falling.\n"
            "https://cbe.example/#pets&amp;x=1"
        },
        {"text": "pets has failed: &lt;!channel&gt; lost &amp; gone\nmacs 5,000,000"},
        {"text": "pets has spent its budget"},
    ]


def test_foreign_texts_leave_without_secrets_and_numbers_as_json_has_them(hook: Hook) -> None:
    why = "GET s3://key:hush@bucket failed\x1b[2J, token=hush " + "x" * 5000
    bad = Notice("failed", "pets", "failed", reason=why, sentence="password=hush", best=float("nan"))
    assert Webhooks([hook.url, f"slack:{hook.url}"]).send(bad) == []
    plain, slack = sorted(hook.got, key=lambda got: "text" in got)
    assert "hush" not in str(hook.got) and "\x1b" not in str(hook.got)
    assert plain["best"] is None and len(plain["reason"]) == 2000 and len(slack["text"]) < 4100


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_may_pass_is_tried_again(hook: Hook, waited: list[float], status: int) -> None:
    hook.answers = [(status, {}), (status, {})]
    assert Webhooks([hook.url], waits_s=(1, 5), wait=waited.append).send(DONE) == []
    assert len(hook.got) == 3 and waited == [1, 5]


def test_after_three_attempts_it_is_given_up_and_told(hook: Hook, waited: list[float]) -> None:
    hook.answers = [(502, {})] * 9
    (line,) = Webhooks([hook.url], wait=waited.append).send(DONE)
    assert line == "127.0.0.1: the notice finished of pets was not taken: it answered 502"
    assert len(hook.got) == 3 and len(waited) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_a_refusal_is_final(hook: Hook, waited: list[float], status: int) -> None:
    hook.answers = [(status, {})]
    (line,) = Webhooks([hook.url], wait=waited.append).send(DONE)
    assert line.endswith(f"it answered {status}") and len(hook.got) == 1 and waited == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirection_is_followed(hook: Hook, waited: list[float], status: int) -> None:
    hook.answers = [(status, {"Location": "/elsewhere"})]
    (line,) = Webhooks([hook.url], wait=waited.append).send(DONE)
    assert line.endswith(f"it answered {status}, and redirections are not followed")
    assert len(hook.paths) == 1 and waited == []


@pytest.mark.parametrize(
    ("asked", "wait_s"),
    [("7", 7), ("0", 1), ("99999999999", 30), ("soon", 1), ("-5", 1), ("nan", 1), ("²", 1)],
)
def test_a_server_may_ask_for_some_patience(
    hook: Hook, waited: list[float], asked: str, wait_s: float
) -> None:
    hook.answers = [(429, {"Retry-After": asked})]
    assert Webhooks([hook.url], waits_s=[1], wait=waited.append).send(DONE) == []
    assert waited == [wait_s]


def test_a_server_that_is_away_is_tried_again_and_named_by_its_host(waited: list[float]) -> None:
    url = f"http://localhost:{free_port()}/{SECRET}"
    (line,) = Webhooks([url], wait=waited.append).send(DONE)
    assert line.startswith("localhost: ") and "cannot be reached (ConnectError)" in line
    assert len(waited) == 2


def test_a_server_that_says_nothing_is_left(hook: Hook, waited: list[float]) -> None:
    hook.silent.set()
    (line,) = Webhooks([hook.url], timeout_s=0.2, wait=waited.append).send(DONE)
    assert line.endswith("no answer within 0.2 s") and len(waited) == 2


def test_a_server_that_never_ends_its_answer_is_left(waited: list[float]) -> None:
    with raw(b"HTTP/1.1 200 OK\r\n", b"X-Slow: 1\r\n") as url:
        (line,) = Webhooks([url], timeout_s=0.3, waits_s=(), wait=waited.append).send(DONE)
    assert line.endswith("no answer within 0.3 s")


def test_a_body_without_an_end_is_not_waited_for() -> None:
    with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", b"more") as url:
        assert Webhooks([url], timeout_s=10, waits_s=()).send(DONE) == []


def test_an_answer_that_is_no_http_is_told(waited: list[float]) -> None:
    with raw(b"SSH-2.0-OpenSSH\r\n\r\n") as url:
        (line,) = Webhooks([url], wait=waited.append).send(DONE)
    assert "cannot be reached (" in line and "SSH" not in line


def test_one_that_fails_keeps_no_other_from_being_told(hook: Hook, waited: list[float]) -> None:
    away = f"http://localhost:{free_port()}/{SECRET}"
    lines = Webhooks([away, hook.url, away, f"slack:{hook.url}"], wait=waited.append).send(DONE)
    assert len(lines) == 2 and all(line.startswith("localhost: ") for line in lines)
    assert len(hook.got) == 2


def test_nobody_to_tell_is_no_failure() -> None:
    assert Webhooks([]).send(DONE) == []


def test_many_threads_may_send_at_once(hook: Hook) -> None:
    webhooks = Webhooks([hook.url])
    with ThreadPoolExecutor(8) as pool:
        told = pool.map(lambda n: webhooks.send(Notice("finished", f"study-{n}", "finished")), range(24))
    assert list(told) == [[]] * 24
    assert sorted(got["study"] for got in hook.got) == sorted(f"study-{n}" for n in range(24))


def test_no_log_and_no_line_holds_the_address(
    hook: Hook, caplog: pytest.LogCaptureFixture, waited: list[float]
) -> None:
    caplog.set_level(logging.DEBUG)
    away = f"http://me:{SECRET}@localhost:{free_port()}/{SECRET}"
    hook.answers = [(302, {"Location": hook.url}), (500, {"Location": hook.url}), (500, {})]
    webhooks = Webhooks([hook.url, f"slack:{hook.url}", away], wait=waited.append)
    with raw(f"HTTP/1.1 {SECRET}\r\n\r\n".encode()) as url:
        told = [webhooks.send(DONE), Webhooks([url], wait=waited.append).send(DONE)]
    assert hook.got and told[0] and told[1]
    logged = [(record.name, record.getMessage()) for record in caplog.records]
    assert SECRET not in str([told, logged, webhooks.targets, vars(webhooks)])
    assert not [name for name, _ in logged if name.startswith(("httpx", "httpcore"))]


def test_others_who_use_httpx_still_find_their_calls_in_the_log(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert Webhooks([hook.url]).send(DONE) == []
    httpx.post(hook.url, json={})
    assert [record.name for record in caplog.records if record.name == "httpx"] == ["httpx"]


@pytest.mark.parametrize(
    ("text", "host", "slack"),
    [
        ("https://example.org/x", "example.org", False),
        ("http://10.0.0.1:8080/x?y=z", "10.0.0.1", False),
        (" https://example.org/x\n", "example.org", False),
        ("https://hooks.slack.com/services/T/B/x", "hooks.slack.com", True),
        ("https://HOOKS.slack.com/services/T/B/x", "hooks.slack.com", True),
        ("https://hooks.slack.com.example.org/x", "hooks.slack.com.example.org", False),
        ("slack:https://example.org/x", "example.org", True),
    ],
)
def test_a_target_is_read(text: str, host: str, slack: bool) -> None:
    target = parse_target(text)
    assert (target.host, target.slack) == (host, slack)
    assert target.url == text.strip().removeprefix("slack:")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hush",
        "slack:",
        "slack:hush",
        "slack:slack:https://h/hush",
        "ftp://host/hush",
        "file:///etc/hush",
        "https://",
        "https:///hush",
        "http:host/hush",
        "https://ho st/hush",
        "https://host/hu sh",
        "https://host/hu\nsh",
        "https://host:port/hush",
        "https://host:99999999/hush",
        "https://[::1/hush",
        "https://\udcff/hush",
        "https://xn--\u2603.\u2603" + "a" * 70 + "/hush",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InputError, match="webhook: got what is no address") as refused:
        parse_target(text)
    assert "hush" not in str(refused.value) and refused.value.__cause__ is None
