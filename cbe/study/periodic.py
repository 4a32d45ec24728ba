"""Something that is done every few seconds beside other work, or until it succeeds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cbe.errors import CheckpointError, RunError, StoreError, Superseded

T = TypeVar("T")

FIRST_S, LONGEST_S = 0.5, 15.0  # between tries


@contextmanager
def every(
    seconds: float,
    do: Callable[[], object],
    name: str,
    failed: Callable[[Exception], object] = lambda _: None,
) -> Iterator[None]:
    """Does it until the block ends; what one time raises, and is told of, the next may not."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds):
            try:
                do()
            except Exception as error:
                failed(error)

    thread = threading.Thread(target=go_on, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def outlast(do: Callable[[], T]) -> T:
    """Does it until it succeeds: a store that does not answer now, or a full disk, may in some minutes."""
    pause_s = FIRST_S
    while True:
        try:
            return do()
        except (RunError, StoreError) as error:
            if isinstance(error, Superseded) or (isinstance(error, CheckpointError) and not error.retry):
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_S)
