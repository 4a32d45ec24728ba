"""Answers that are worked out once for all who ask, until what they are made of has changed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any

MAX_ANSWERS = 128  # answers
MOST_CACHED_BYTES = 1_000_000  # of one that is kept


@dataclass
class _Answer:
    state: object
    content: asyncio.Future[bytes]


class AnswerCache:
    """For one event loop."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()

    async def get(
        self, question: Hashable, state: object, find: Callable[[], Coroutine[Any, Any, bytes]]
    ) -> bytes:
        """The answer to a question in a state of things; callers who ask meanwhile wait for the same one."""
        last = self._answers.get(question)
        if last is None or last.state != state or _failed(last.content):
            last = _Answer(state, asyncio.ensure_future(find()))
            last.content.add_done_callback(_failed)  # an error is told to those who asked, if any still wait
            self._answers[question] = last
        self._answers.move_to_end(question)
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        content = await asyncio.shield(last.content)
        if len(content) > MOST_CACHED_BYTES:
            self._answers.pop(question, None)
        return content


def _failed(content: asyncio.Future[bytes]) -> bool:
    return content.done() and (content.cancelled() or content.exception() is not None)
