"""How trials hear that they must leave their process: the study halts, or their machine is about to go.

Every process waits for one word of one small actor beside the driver; nothing is polled. A trial that hears
it keeps a checkpoint after the step it is at.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

Word = Literal["halt", "move"]

MAX_PROCESSES = 100_000  # processes that wait


class _Broadcaster:
    def __init__(self) -> None:
        self._halted, self._leaving = False, frozenset[str]()
        self._changed = asyncio.Condition()

    async def word(self, node: str) -> Word:
        """Waits until there is something to say to the processes of a machine."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._halted or node in self._leaving)
        return "halt" if self._halted else "move"

    async def say(self, halted: bool, leaving: Iterable[str]) -> None:
        async with self._changed:
            self._halted, self._leaving = self._halted or halted, self._leaving | frozenset(leaving)
            self._changed.notify_all()


class StopSignal:
    """The driver's end."""

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(_Broadcaster)
        self.broadcaster = actor.options(
            num_cpus=0, max_concurrency=MAX_PROCESSES, scheduling_strategy=here
        ).remote()

    def halt(self) -> None:
        """Tells everybody."""
        self.broadcaster.say.remote(True, ())

    def leave(self, nodes: Iterable[str]) -> None:
        """Tells the processes of some machines that these are about to go."""
        self.broadcaster.say.remote(False, tuple(nodes))

    def close(self) -> None:
        ray.kill(self.broadcaster)


class StopListener:
    """A trial's end; asked after every step, so that asking must cost nothing."""

    def __init__(self, broadcaster: Any) -> None:
        self.word: Word | None = None
        self._broadcaster = broadcaster
        threading.Thread(target=self._listen, name="ear", daemon=True).start()

    def _listen(self) -> None:
        try:
            self.word = ray.get(self._broadcaster.word.remote(ray.get_runtime_context().get_node_id()))
        except ray.exceptions.RayError:  # the driver is gone, and this process will be
            return


@cache
def listener(broadcaster: Any) -> StopListener:
    """One a process and study, which many trials use."""
    return StopListener(broadcaster)
