"""Where commands print: data to stdout, talk to stderr."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from cbe.words import clean

out = Console()
err = Console(stderr=True)


def say(text: str, style: str = "", console: Console = err) -> None:
    """Says a text as it stands; words stay whole on a terminal, lines stay whole in a file."""
    console.print(Text(clean(text), style), soft_wrap=not console.is_terminal)
