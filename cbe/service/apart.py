"""Work that may take long or do harm, in a process of its own that can be killed.

What it gives comes back as JSON or as bytes: nothing that such a process says is ever unpickled.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from cbe.errors import CbeError, ConfigError, Fault, InputError, RunError

MEMORY = 4 * 2**30  # bytes that a process may ask for; training, which maps much, is let off
NICE = 5  # behind the trials, which may be on the same machine

# Loaded once, before processes are made, so that one of them is there in a few hundredths of a second.
_LOADED = ["__main__", "cbe.service.work", "cbe.report.page.render", "cbe.store.sql"]
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(_LOADED)


class TookTooLong(InputError):
    """The process was killed at its time limit."""


def call(function: Callable[..., Any], *given: Any, timeout_s: float, memory: int | None = MEMORY) -> Any:
    """What a function of this package gives: bytes as they are, everything else as JSON has it.

    Errors raised on purpose are raised here again; others are told on stderr and become a RunError.
    """
    ours, theirs = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_work, args=(theirs, function, given, memory), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout_s):
            raise TookTooLong(f"took longer than {timeout_s:g} s; ask for less")
        answer = ours.recv_bytes()
    except EOFError:
        process.join()
        raise RunError(
            f"{function.__name__}: its process ended without an answer (exit code {process.exitcode}), "
            "as when memory runs out; ask for less"
        ) from None
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()
    return _opened(answer)


def _work(
    answer: Connection, function: Callable[..., Any], given: tuple[Any, ...], memory: int | None
) -> None:
    os.nice(NICE)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        found = function(*given)
        content = b"B" + found if isinstance(found, bytes) else b"J" + json.dumps(found, default=str).encode()
    except CbeError as error:
        content = b"E" + json.dumps(_told(error)).encode()
    except MemoryError:
        content = b"E" + json.dumps(_told(InputError("needs too much memory; ask for less"))).encode()
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        content = b"E" + json.dumps({"message": f"{function.__name__}: {type(error).__name__}"}).encode()
    answer.send_bytes(content)


def _told(error: CbeError) -> dict[str, Any]:
    faults = error.faults if isinstance(error, ConfigError) else ()
    return {
        "message": str(error),
        "input": isinstance(error, InputError),
        "faults": [[fault.where, fault.problem, fault.hint] for fault in faults],
    }


def _opened(answer: bytes) -> Any:
    kind, content = answer[:1], answer[1:]
    if kind == b"B":
        return content
    plain = json.loads(content)
    if kind == b"J":
        return plain
    if plain.get("faults"):
        raise ConfigError([Fault(*each) for each in plain["faults"]])
    raise (InputError if plain.get("input") else RunError)(plain["message"])
