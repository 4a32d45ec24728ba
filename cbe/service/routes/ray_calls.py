"""Calls that wait for Ray, whose dashboard may take a minute: in threads that nobody else waits for.

Tokens are checked and the store is looked at in the threads that all the rest shares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request

from cbe.service.queue.ray_jobs import RayAway

AT_ONCE = 4
MOST_ASKING = 16  # callers, those who are being answered included
MOST_ACTING = 64  # the same; what is submitted in a moment of many should not be turned away
AGAIN_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class RayBusy(RayAway):
    """So many wait for Ray already that another would wait in vain."""

    retry_after_s = AGAIN_S


class RayCalls:
    """Lets some calls wait for Ray at once; others wait their turn. For one event loop."""

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "ray")
        self._most, self._waiting = most, 0

    async def run(self, function: Callable[P, T], *given: P.args, **more: P.kwargs) -> T:
        if self._waiting >= self._most:
            raise RayBusy("too many wait for Ray to answer; try again")
        self._waiting += 1
        try:
            work = partial(function, *given, **more)
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Nobody waits any longer."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _questions(request: Request) -> RayCalls:
    found: RayCalls = request.app.state.questions
    return found


async def _deeds(request: Request) -> RayCalls:
    found: RayCalls = request.app.state.actions
    return found


Questions = Annotated[RayCalls, Depends(_questions)]
Actions = Annotated[RayCalls, Depends(_deeds)]  # separate: however many ask, a study can be stopped
