"""Something that is done every few seconds beside other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
