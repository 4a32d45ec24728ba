"""The way to a service: what is sent where, tried again, and refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cbe.errors import InputError, RunError
from cbe.service.clients.service import connect
from tests.service.clients.test_service import NOBODY


@dataclass
class Odd:
    """A server that answers as a test says, and remembers what it was asked."""

    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@contextmanager
def odd() -> Iterator[Odd]:
    found = Odd()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            found.asked.append((self.path, self.headers.get("authorization")))
            status, headers, content = found.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_token_is_not_sent_where_a_redirect_leads() -> None:
    with odd() as here, odd() as there, connect(here.url, "cbe_secret") as client:
        here.answers = [(307, {"location": f"{there.url}/api/studies"}, b"")] * 2
        with pytest.raises(InputError, match=f"sends on to {there.url}") as refused:
            client.ls()
        with pytest.raises(InputError):
            next(client.events())
        assert there.asked == [] and "secret" not in str(refused.value)


def test_a_read_is_tried_again_and_a_wish_is_not() -> None:
    busy = (503, {}, b'{"message": "busy", "faults": []}')
    with odd() as there, connect(there.url) as client:
        there.answers = [busy, (200, {}, b'{"total": 0, "studies": []}'), busy]
        assert client.ls() == [] and len(there.asked) == 2
        with pytest.raises(RunError, match="busy"):
            client.stop("made")
        assert len(there.asked) == 3


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((404, {}, b"<html>nginx"), InputError, r"answers 404 \(Not Found\); is a CBE service there"),
        ((500, {}, b'{"message": "a fault", "faults": []}'), RunError, r"http://127\.0\.0\.1:\d+: a fault"),
        ((200, {}, b"<html>hello"), RunError, "does not understand"),
        ((200, {}, b'{"total": 1, "studies": [{"study": "a"}]}'), RunError, "install the version that"),
        ((429, {}, b'{"message": "too many wrong tokens"}'), InputError, "too many wrong tokens"),
    ],
)
def test_what_is_no_answer_is_told_with_what_to_do(answer: Any, error: type[Exception], words: str) -> None:
    with odd() as there, connect(there.url) as client:
        there.answers = [answer]
        with pytest.raises(error, match=words):
            client.ls()


def test_where_nobody_answers_the_address_is_said_and_whether_a_wish_may_have_been_granted() -> None:
    with connect(NOBODY) as client:
        with pytest.raises(RunError, match=r"http://127\.0\.0\.1:9: cannot be reached .*check the address"):
            client.show("made")
        with pytest.raises(RunError, match="it may have been done all the same"):
            client.stop("made")


@pytest.mark.parametrize(
    "url", ["", "auto", "ray://head:10001", "http://", "ftp://a", "http://a:b", "http://a?b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="wanted http"):
        connect(url)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="CBE_TOKEN") as refused:
        connect("https://ada:hunter2@cbe.example.org")
    assert "hunter2" not in str(refused.value)


def test_a_token_goes_in_the_clear_to_this_machine_alone_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in ("https://cbe.example.org", "http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"):
        connect(url, "cbe_secret").close()
    connect("http://cbe.example.org").close()
    with pytest.raises(InputError, match="anybody on the way could read your token") as refused:
        connect("http://cbe.example.org", "cbe_secret")
    assert "CBE_INSECURE=1" in str(refused.value) and "cbe_secret" not in str(refused.value)
    connect("http://cbe.example.org", "cbe_secret", insecure=True).close()
    monkeypatch.setenv("CBE_INSECURE", "1")
    connect("http://cbe.example.org", "cbe_secret").close()


def test_what_goes_to_this_machine_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with odd() as proxy, odd() as there:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        there.answers = [(200, {}, b'{"total": 0, "studies": []}')]
        with connect(there.url, "cbe_secret") as client:
            assert client.ls() == []
        assert proxy.asked == []
