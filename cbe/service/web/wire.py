"""The line to a client, as uvicorn has it, with an end to what a request's head may be and take.

uvicorn's fast parser keeps headers however many come, and waits for them however long; and it waits for ever
for a client to read its answer.
"""

from __future__ import annotations

import asyncio
import json
import resource
from contextlib import suppress

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cbe.service.web.headers import HEADERS

MOST_HEAD = 160_000  # bytes of an address and all headers
MOST_FILES = 65_536
REQUEST_S = 60.0  # within which a request is there as a whole
READ_S = 60.0  # within which something is read of an answer that waits to be


class Wire(HttpToolsProtocol):
    _head = 0  # bytes of the head so far
    _unheard = 0  # bytes since the parser last told of anything: they are in its memory
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_request()
        self._is_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unheard += len(data)
        super().data_received(data)
        if self._unheard > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("the head of the request is too large; send less")

    def send_400_response(self, msg: str) -> None:
        """In the form of all refusals; uvicorn's own is a plain text."""
        content = json.dumps({"message": msg, "faults": []})
        headers = HEADERS | {"Content-Type": "application/json", "Content-Length": str(len(content))}
        head = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 400 Bad Request\r\n{head}connection: close\r\n\r\n{content}".encode())
        self.transport.close()

    def on_message_begin(self) -> None:
        self._head = self._unheard = 0
        self._await_request()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._heard(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._heard(len(name) + len(value))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._unheard = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unheard = 0
        self._has_request()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def _heard(self, size: int) -> None:
        self._unheard = 0
        self._head += size
        if self._head > MOST_HEAD:
            raise ValueError("the head is too large")  # which the parser tells as an invalid request

    def _await_request(self) -> None:
        self._has_request()
        self._late = self.loop.call_later(REQUEST_S, self.transport.close)

    def _has_request(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _await_reader(self) -> None:
        """Hangs up on a client who reads nothing; one who reads slowly is waited for."""
        left = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < left:
                self._await_reader()
            else:
                self.transport.abort()  # to close it would wait until all of it is read

        self._unread = self.loop.call_later(READ_S, look)

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def allow_many_lines() -> None:
    """Each listener is an open file, of which a process is often let have a thousand, unless it asks."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, MOST_FILES)), most))
