"""What a person sees while a study runs: a panel on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import rich.live
from rich.console import Console

from cbe.cli.console import err
from cbe.cli.log import Log
from cbe.cli.panel import panel
from cbe.cli.stores import again
from cbe.cli.talk import say

if TYPE_CHECKING:
    from cbe.study.progress import Progress

EVERY_S = 0.5


class Live:
    """Shows a study on stderr for the time of a block, from a thread of its own."""

    def __init__(self, progress: Progress, console: Console = err) -> None:
        self._progress, self._console = progress, console
        drawn = console.is_terminal and not console.is_dumb_terminal
        self._view: _View = _Screen(progress, console) if drawn else _Lines(progress, console)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="live", daemon=True)

    def __enter__(self) -> Self:
        self._view.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._view.stop()
        words = self._last_words(kind)
        if words:
            say(words, console=self._console)

    def _work(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._view.update()

    def _last_words(self, kind: type[BaseException] | None) -> str:
        ledger = self._progress.ledger
        on = again("resume", ledger.recorder.folder)
        if kind is KeyboardInterrupt:
            return f"Ended at once; what was recorded and the checkpoints are kept.\nGo on with: {on}"
        if kind is not None or ledger.broken or not ledger.halted:
            return ""  # an error says itself what to do
        if ledger.halted.startswith("budget."):
            on += f" --set {ledger.halted.split()[0]}=…"
        return f"Stopped: {ledger.halted}; every trial keeps its last checkpoint.\nGo on with: {on}"


class _View(Protocol):
    def start(self) -> None: ...
    def update(self) -> None: ...
    def stop(self) -> None: ...


class _Screen:
    """A panel that is drawn anew in its place."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._live = rich.live.Live(console=console, auto_refresh=False)

    def start(self) -> None:
        self._live.start()
        self.update()

    def update(self) -> None:
        self._draw()

    def stop(self) -> None:
        self._draw(over=True)
        self._live.stop()

    def _draw(self, over: bool = False) -> None:
        # The ^C that a terminal echoes behind the last line must not break it and move all others.
        width = self._console.width - len("^C^C")
        self._live.update(panel(self._progress, width, self._console.height, over=over), refresh=True)


class _Lines:
    """What a log file can hold."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._log = Log(progress)

    def start(self) -> None:
        pass

    def update(self) -> None:
        for line in self._log.lines(self._progress.elapsed_s):
            say(line, console=self._console)

    def stop(self) -> None:
        self.update()
