"""A small TCP proxy before an S3 API of this machine, which fails on demand in the ways that networks do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Fault = Literal["refuses", "drops", "answers 503"]

_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultyProxy:
    """Listens on loopback and passes on to one port there, while nothing is wrong."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._fault: Fault | None = None
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.met = 0  # connections that met a fault
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Fails until the block ends; what is under way is cut."""
        self._fault = fault
        for each in list(self._open):
            _cut(each)
        try:
            yield
        finally:
            self._fault = None
            for each in list(self._open):
                _cut(each)

    def close(self) -> None:
        self._server.close()
        for each in list(self._open):
            _cut(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        try:
            if self._fault is not None:
                self.met += 1
            if self._fault == "refuses":
                return
            if self._fault == "drops":  # and says nothing
                while client.recv(2**16):
                    pass
                return
            if self._fault == "answers 503":
                client.recv(2**16)
                client.sendall(_BUSY)
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                self._open.add(server)
                back = threading.Thread(target=_pass_on, args=[server, client], daemon=True)
                back.start()
                _pass_on(client, server)
                back.join()
                self._open.discard(server)
        except OSError:
            pass
        finally:
            self._open.discard(client)
            client.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(2**16):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _cut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
