"""A client who reads nothing is hung up on; one who reads slowly is not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cbe.service.web import wire
from cbe.service.web.wire import Wire


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "READ_S", 0.05)


def test_a_client_who_never_reads_is_hung_up_on() -> None:
    ended = threading.Event()

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            await asyncio.sleep(0)  # lets it be heard that the client is gone

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await StreamingResponse(parts())(scope, receive, send)
        finally:
            ended.set()

    config = uvicorn.Config(endless, http=Wire, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=[[listening]])
        thread.start()
        try:
            with socket.create_connection(listening.getsockname()) as line:
                line.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert ended.wait(60)
                line.settimeout(60)
                while line.recv(1 << 20):
                    pass  # what had left for it already; then the line has an end
        finally:
            server.should_exit = True
            thread.join()


class Line(asyncio.Transport):
    """A line whose client reads as told: so many bytes are left unread, the last number for good."""

    def __init__(self, left: list[int]) -> None:
        super().__init__()
        self._left, self.aborted = left, asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]

    def abort(self) -> None:
        self.aborted.set()

    def is_closing(self) -> bool:
        return self.aborted.is_set()

    def close(self) -> None:
        pass


def wired(line: Line) -> Wire:
    async def nothing(scope: Scope, receive: Receive, send: Send) -> None: ...

    config = uvicorn.Config(nothing, log_config=None, interface="asgi3", lifespan="off", ws="none")
    config.load()
    made = Wire(config, uvicorn.Server(config).server_state, {}, asyncio.get_running_loop())
    made.connection_made(line)
    return made


def test_a_client_who_reads_slowly_is_waited_for_until_it_stops() -> None:
    async def read() -> None:
        looks = [300, 200, 100]
        line = Line(looks)
        slow = wired(line)
        slow.pause_writing()
        await asyncio.wait_for(line.aborted.wait(), 60)
        assert looks == [100]  # all that was read was waited for; then nothing more was
        slow.connection_lost(None)

    asyncio.run(read())


def test_a_client_who_has_read_is_not_hung_up_on() -> None:
    async def read() -> None:
        line = Line([300])
        fast = wired(line)
        fast.pause_writing()
        fast.resume_writing()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.aborted.wait(), 10 * wire.READ_S)
        fast.connection_lost(None)

    asyncio.run(read())
