"""What a person sees while a study goes on: a panel on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import rich.live
from rich.console import Console
from rich.text import Text

from cbe.cli.console import err, say
from cbe.cli.progress.log import Log
from cbe.cli.progress.panel import panel
from cbe.report.lookup import store_of
from cbe.service.clients.local import LocalStudies
from cbe.study.progress_view import DetailsView, Shown
from cbe.words import clean

if TYPE_CHECKING:
    from cbe.study.overview import Details
    from cbe.study.progress import Progress

EVERY_S = 0.5

Advice = Callable[[], Iterable[Text]]  # what the reader can do while it goes on


@contextmanager
def live(progress: Progress, console: Console = err) -> Iterator[None]:
    """Shows a study that this process drives, on stderr and for the time of a block."""
    folder = progress.ledger.recorder.folder
    resume = LocalStudies(store_of(folder)).command("resume", folder.name)
    try:
        with _drawn(_view(progress, lambda: _driving(progress, resume), console)):
            yield
    except KeyboardInterrupt:
        if progress.rows():
            ended = "Stopped at once. Recorded results and checkpoints are kept."
            say(f"{ended}\nGo on with: {resume}", console=console)
        raise
    reason = progress.stop_reason
    if reason and not progress.ledger.broken:  # an error says itself what to do
        if reason == "interrupted" and not progress.rows():
            say(f"Stopped: {reason}; no trial had started.", console=console)
            return
        kept = f"Stopped: {reason}; every trial keeps its last checkpoint."
        say(f"{kept}\nGo on with: {resume}{more(reason)}", console=console)


def more(reason: str | None) -> str:
    """What must be added to the command that goes on with a study whose budget is spent."""
    return f" --set {reason.split()[0]}=…" if reason and reason.startswith("budget.") else ""


def watched(found: Iterable[Details], advice: str, console: Console = err) -> Details:
    """Shows a study that runs elsewhere as long as there is news of it; gives the last."""
    news = iter(found)
    view = DetailsView(next(news))
    with _drawn(_view(view, lambda: [Text(line, "dim") for line in advice.splitlines()], console)):
        for each in news:
            view.details = each
    return view.details


def _driving(progress: Progress, resume: str) -> Iterator[Text]:
    if progress.stage == "stopped":
        yield Text(f"Stopping: {clean(progress.stop_reason)}. Ctrl-C ends at once.", "yellow")
    elif progress.stage != "finished":
        yield Text("Ctrl-C stops after the running reports, keeps all; twice ends at once.", "dim")
        yield Text(f"Go on with: {resume}", "dim")


class View(Protocol):
    def start(self) -> None: ...
    def update(self) -> None: ...
    def stop(self) -> None: ...


def _view(shown: Shown, advice: Advice, console: Console) -> View:
    drawn = console.is_terminal and not console.is_dumb_terminal
    return _Screen(shown, advice, console) if drawn else _Lines(shown, console)


@contextmanager
def _drawn(view: View) -> Iterator[None]:
    """Keeps a view up to date from a thread of its own."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(EVERY_S):
            view.update()

    thread = threading.Thread(target=work, name="live", daemon=True)
    view.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        view.stop()


class _Screen:
    """A panel that is drawn anew in its place."""

    def __init__(self, shown: Shown, advice: Advice, console: Console) -> None:
        self._shown, self._advice, self._console = shown, advice, console
        self._live = rich.live.Live(console=console, auto_refresh=False)

    def start(self) -> None:
        self._live.start()
        self.update()

    def update(self) -> None:
        self._draw(self._advice())

    def stop(self) -> None:
        self._draw(())
        self._live.stop()

    def _draw(self, advice: Iterable[Text]) -> None:
        # The ^C that a terminal echoes behind the last line must not break it and move all others.
        width = self._console.width - len("^C^C")
        self._live.update(panel(self._shown, width, self._console.height, advice), refresh=True)


class _Lines:
    """What a log file can hold."""

    def __init__(self, shown: Shown, console: Console) -> None:
        self._console = console
        self._log = Log(shown)
        self._is_shown = bool(shown.rows())
        self._began = time.monotonic()

    def start(self) -> None:
        if self._is_shown:  # where it stands already
            say(self._log.so_far(), console=self._console)
        self.update()

    def update(self) -> None:
        for line in self._log.lines(time.monotonic() - self._began):
            say(line, console=self._console)

    def stop(self) -> None:
        self.update()
