"""What is said to a person, on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from cbe.cli.console import err
from cbe.words import clean


def say(text: str, style: str = "", console: Console = err) -> None:
    """Says a text as it stands; words stay whole on a terminal, lines stay whole in a file."""
    console.print(Text(clean(text), style), soft_wrap=not console.is_terminal)
