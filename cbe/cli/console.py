"""Where commands print: data to stdout, talk to stderr."""

from rich.console import Console

out = Console()
err = Console(stderr=True)
