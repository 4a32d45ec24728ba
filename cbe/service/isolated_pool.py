"""Work that may take long or do harm, in a process of its own that can be killed.

What it gives comes back as JSON or as bytes: nothing that such a process says is ever unpickled.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cbe.errors import CbeError, ConfigError, Fault, InputError, RunError
from cbe.service.web.http_errors import TooMany
from cbe.words import clean, finite

MEMORY = 4 * 2**30  # bytes that a process may ask for; training, which maps much, is let off
MOST_WAITING = 64  # calls, those under way included
MOST_ANSWER_BYTES = 64_000_000  # of an answer
NICE = 5  # behind the trials, which may be on the same machine

# Loaded once, before processes are made, so that one of them is there in a few hundredths of a second.
_LOADED = ["__main__", "cbe.service.isolated_tasks", "cbe.report.page.render", "cbe.store.sql"]
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(_LOADED)


def prepare() -> None:
    """Begins to load what the first call would wait for."""
    forkserver.ensure_running()


class TookTooLong(InputError):
    """The process was killed at its time limit."""


class IsolatedPool:
    """Lets some calls be answered at once, each by a process; the others wait their turn.

    `died` is what is raised where a process ends without a word, as when memory runs out.
    """

    def __init__(self, at_once: int, died: type[CbeError] = RunError) -> None:
        self._died = died
        self._threads = ThreadPoolExecutor(at_once, "isolated")
        self._running: set[BaseProcess] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._waiting = 0

    async def call(
        self, function: Callable[..., Any], *given: Any, timeout_s: float, memory: int | None = MEMORY
    ) -> Any:
        """What a function of this package gives, as JSON has it."""
        return json.loads(await self.answer(function, *given, timeout_s=timeout_s, memory=memory))

    async def answer(
        self, function: Callable[..., Any], *given: Any, timeout_s: float, memory: int | None = MEMORY
    ) -> bytes:
        """The same as JSON's text; bytes come as they are.

        Errors raised on purpose are raised here again; others are told on stderr and become a RunError.
        """
        if self._waiting >= MOST_WAITING:
            raise TooMany("too many questions wait for an answer; try again", 10)
        work = partial(self._answer, function, given, timeout_s, memory)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Ends what is under way; nobody waits for it any longer."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _answer(
        self, function: Callable[..., Any], given: tuple[Any, ...], timeout_s: float, memory: int | None
    ) -> bytes:
        ours, theirs = _processes.Pipe(duplex=False)
        process = _processes.Process(target=_work, args=(theirs, function, given, memory), daemon=True)
        process.start()
        theirs.close()
        with self._lock:
            self._running.add(process)
            if self._closed:
                process.kill()
        try:
            if not ours.poll(timeout_s):
                raise TookTooLong(f"took longer than {timeout_s:g} s; ask for less")
            answer = ours.recv_bytes()
        except EOFError:
            process.join()
            raise self._died(
                f"{function.__name__}: its process ended without an answer (exit code {process.exitcode}), "
                "as when memory runs out; ask for less"
            ) from None
        finally:
            process.kill()
            process.join()
            with self._lock:
                self._running.discard(process)
            process.close()
            ours.close()
        return _opened(answer)


def _work(
    answer: Connection,
    function: Callable[..., Any],
    given: tuple[Any, ...],
    memory: int | None,
) -> None:
    _bounded(memory)
    try:
        found = function(*given)
        if not isinstance(found, bytes):
            plain = finite(found)
            found = json.dumps(plain, allow_nan=False, separators=(",", ":"), default=str).encode()
        if len(found) > MOST_ANSWER_BYTES:
            raise InputError(f"the answer is larger than {MOST_ANSWER_BYTES:,} bytes; ask for less")
        content = b"A" + found
    except CbeError as error:
        content = _encoded(error)
    except MemoryError:
        content = _encoded(InputError("needs too much memory; ask for less"))
    except RecursionError:
        content = _encoded(InputError("is nested too deeply; write it plainly"))
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            print(f"  {clean(line)}", file=sys.stderr)  # no line of which begins as those of the log do
        content = b"E" + json.dumps({"message": f"{function.__name__}: {type(error).__name__}"}).encode()
    answer.send_bytes(content)


def _bounded(memory: int | None) -> None:
    """What keeps a process small and ends it, also where nobody is left to kill it."""
    os.nice(NICE)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with suppress(OSError):  # where memory runs out all the same, it is this one that goes
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=_end_with_the_service, daemon=True).start()


def _end_with_the_service() -> None:
    service = multiprocessing.parent_process()
    if service is not None:
        service.join()
        os._exit(1)


def _encoded(error: CbeError) -> bytes:
    faults = error.faults if isinstance(error, ConfigError) else ()
    plain = {
        "message": str(error),
        "input": isinstance(error, InputError),
        "faults": [[fault.where, fault.problem, fault.hint] for fault in faults],
    }
    return b"E" + json.dumps(plain).encode()


def _opened(answer: bytes) -> bytes:
    kind, content = answer[:1], answer[1:]
    if kind == b"A":
        return content
    plain = json.loads(content)
    if plain.get("faults"):
        raise ConfigError([Fault(*each) for each in plain["faults"]])
    raise (InputError if plain.get("input") else RunError)(plain["message"])
