"""Around every request: how large it may be, where it may come from, and what every answer carries."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cbe.service.auth.access import refuse_foreign
from cbe.service.web.headers import HEADERS
from cbe.service.web.http_errors import Forbidden

MOST_BODY_BYTES = 1_000_000  # of a request's body
TOO_LARGE = f"the body is larger than {MOST_BODY_BYTES:,} bytes; send less"

log = logging.getLogger("cbe.service")


class Guard:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, tls: bool = False) -> None:
        self._app = app
        self._headers = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if tls else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, answered = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._guarded(scope, receive, sending)
        except ClientDisconnect:
            pass  # in the middle of a body
        except asyncio.CancelledError:  # the service ends, and has waited long enough
            if answered:
                with suppress(RuntimeError):
                    await send({"type": "http.response.body", "body": b""})
            else:
                await _refuse(sending, 503, "the service ends; try again later")
        except Exception:
            if answered:
                raise  # uvicorn logs it, and breaks the connection off
            log.exception("%s %s", scope["method"], scope["path"])
            await _refuse(sending, 500, "the service has a fault; its log says more")
        finally:
            figures = scope["app"].state.figures if "app" in scope else None
            if figures is not None:
                figures.saw(scope, answered, time.perf_counter() - begun)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            refuse_foreign(request)
        except Forbidden as error:
            await _refuse(send, 403, str(error))
            return
        if {"transfer-encoding", "content-length"} <= set(request.headers):
            # A proxy may take the other one for the end of the body, and what follows for another request.
            await _refuse(send, 400, "the request says in two ways where its body ends; send one of them")
            return
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > MOST_BODY_BYTES:
            await _refuse(send, 413, TOO_LARGE)
            return
        read = 0

        async def receiving() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MOST_BODY_BYTES:
                raise HTTPException(413, TOO_LARGE)
            return message

        await self._app(scope, receiving, send)


async def _refuse(send: Send, code: int, message: str) -> None:
    content = json.dumps({"message": message, "faults": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": content})
