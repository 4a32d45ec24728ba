"""Answers that go on: how many there may be, of one reader too, and how soon after a token they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cbe.errors import CbeError
from cbe.service.auth.access import is_open
from cbe.service.auth.tokens import Holder
from cbe.service.service import Service
from cbe.service.web.http_errors import TooMany
from cbe.store.redact import redact

MAX_STREAMS = 1000  # answers that go on, of all readers together
MOST_OF_A_TOKEN = 50
MOST_OF_AN_ADDRESS = 500  # where no token is needed: this machine's programs all have the same
ASK_S = 10.0  # after which a reader's token is looked at again
AGAIN_S = 30.0  # before a reader who is one too many should come again
LONGEST = 100_000  # characters of a line that is waited for


class Streams:
    """The answers that go on at this moment, by reader. For one event loop."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    @contextmanager
    def one_more(self, reader: str, most: int) -> Iterator[None]:
        """Counts an answer for as long as it goes on; refuses one that is too many."""
        if self._of.total() >= MAX_STREAMS:
            raise TooMany(f"{MAX_STREAMS} listen already; try again", AGAIN_S)
        if self._of[reader] >= most:
            raise TooMany(f"you listen {most} times already; end one of those, or try again", AGAIN_S)
        self._of[reader] += 1
        try:
            yield
        finally:
            self._of[reader] -= 1
            if not self._of[reader]:
                del self._of[reader]


class Live(StreamingResponse):
    """An answer that goes on while there is more, somebody listens, and their token holds."""

    def __init__(self, request: Request, who: Holder, parts: AsyncIterator[bytes], kind: str) -> None:
        super().__init__(parts, media_type=kind, headers={"X-Accel-Buffering": "no"})
        self._request, self._who = request, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._request.client
        address, id_ = client.host if client else "?", self._who.id
        most = MOST_OF_A_TOKEN if id_ else MOST_OF_AN_ADDRESS
        streams: Streams = self._request.app.state.streams
        with streams.one_more(id_ or address, most):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with anyio.CancelScope() as going_on:
            # Beside the parts, not between them: a study that prints nothing has none for hours.
            ended = asyncio.create_task(self._token_ends())
            ended.add_done_callback(lambda task: None if task.cancelled() else going_on.cancel())
            try:
                async for part in self.body_iterator:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            finally:
                ended.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _token_ends(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            if not await self._is_allowed():
                return

    async def _is_allowed(self) -> bool:
        """Whether the token holds; a caller without one may listen until the first is made."""
        service: Service = self._request.app.state.service
        if self._who.id:
            return await asyncio.to_thread(service.tokens.holds, self._who.id)
        try:
            return await is_open(self._request)
        except CbeError:  # the store cannot say; see Tokens.holds
            return True


async def redacted(parts: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """What is printed without its secrets; by whole lines, for half a secret does not look like one."""
    begun = ""
    async for part in parts:
        begun += part
        end = 1 + max(begun.rfind("\n"), begun.rfind("\r"))  # a bar of progress has the second alone
        if len(begun) - end > LONGEST:
            end = len(begun)
        if end:
            yield redact(begun[:end]).encode()
            begun = begun[end:]
    if begun:
        yield redact(begun).encode()
