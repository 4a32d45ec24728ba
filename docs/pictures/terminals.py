"""Terminals of the pictures: what commands print of the recorded quickstart study, as text and as SVG."""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, cast

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from rich.theme import Theme

import cbe.cli
from cbe.cli import console
from docs.pictures.record import MOMENT, RECORD

if TYPE_CHECKING:
    from cbe.study.progress import Progress

Mode = Literal["light", "dark"]

WIDTH, HEIGHT = 80, 30
QUICKSTART = RECORD.parents[1] / "quickstart.yaml"

# The colours of GitHub's two themes: black to white, plain and bright.
_LIGHT = [(36, 41, 47), (207, 34, 46), (17, 99, 41), (154, 103, 0), (9, 105, 218), (130, 80, 223)]
_LIGHT += [(27, 124, 131), (110, 119, 129)]
_DARK = [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255)]
_DARK += [(57, 197, 207), (177, 186, 196)]
THEMES: dict[Mode, TerminalTheme] = {
    "light": TerminalTheme((246, 248, 250), (31, 35, 40), _LIGHT, _LIGHT),
    "dark": TerminalTheme((13, 17, 23), (230, 237, 243), _DARK, _DARK),
}
_BAR = {"light": "grey84", "dark": "grey23"}  # what is left of a bar; rich has the same for both

# As rich's own, but without its web font, for a picture must not ask another host for anything; and with a
# font as high as its line, so that frames have no gaps.
_FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas,
  "DejaVu Sans Mono", monospace;
  font-size: 21px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def answer(screen: Console) -> None:
    """`make study` at its end: the command that it runs, on the study that has finished."""
    with _recorded() as folder:
        shutil.copy(QUICKSTART, folder)
        _cbe("run", "--resume", QUICKSTART.name, "--store", "results")


def progress(screen: Console) -> None:
    """`make study` on its way: the panel of `cbe run`, as it stood at one moment of the search."""
    from cbe.cli.progress.live import _driving
    from cbe.cli.progress.panel import panel
    from cbe.store.folder import Store
    from cbe.study.overview import details
    from cbe.study.progress_view import DetailsView

    with _recorded() as folder:
        _rewind(folder / "results/quickstart")
        shown = DetailsView(details(Store.open("results"), "quickstart"))
        asked = cast("Progress", shown)  # only how far it is, which both tell
        screen.print(panel(shown, WIDTH, HEIGHT, _driving(asked, "cbe resume quickstart")))


# Each picture by its name: the line that a reader types, and what that prints.
TERMINALS: dict[str, tuple[str, Callable[[Console], None]]] = {
    "terminal-progress": ("make study", progress),
    "terminal-answer": ("make study", answer),
}


def text(name: str) -> str:
    """What the terminal shows today."""
    return _printed(name).export_text()


def svg(name: str, theme: Mode) -> str:
    """The terminal as a picture in the colours of a theme."""
    screen = _printed(name, theme)
    drawn = screen.export_svg(title="CBE Studies", theme=THEMES[theme], code_format=_FORMAT, unique_id=name)
    return re.sub(r' clip-path="[^"]*"', "", drawn)  # would cut frames at the edges of their lines


def _printed(name: str, theme: Mode = "light") -> Console:
    command, print_to = TERMINALS[name]
    screen = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    screen.push_theme(Theme({"bar.back": _BAR[theme]}))
    screen.print(Text(f"$ {command}", "bold"))
    before, console.out = console.out, screen
    try:
        print_to(screen)
    finally:
        console.out = before
    return screen


def _cbe(*arguments: str) -> None:
    cbe.cli.app(list(arguments), standalone_mode=False)


@contextmanager
def _recorded() -> Iterator[Path]:
    """A folder whose store holds the recorded study, and that commands take for their own."""
    with TemporaryDirectory() as folder, chdir(folder):
        shutil.copytree(RECORD, Path(folder, "results/quickstart"))
        yield Path(folder)


def _rewind(study: Path) -> None:
    """Takes the study back to the moment of the search whose status was kept, with its driver alive."""
    status = json.loads((study / f"{MOMENT}.json").read_text("utf-8"))
    shutil.copy(study / f"{MOMENT}.parquet", study / "trials" / "record.parquet")
    (study / "status.json").write_text(json.dumps(status | {"beat": time.time()}), "utf-8")
