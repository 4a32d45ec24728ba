"""Drawings within the page, so that they take its colours, in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "figures"
_IMAGE = re.compile(r"^!\[(?P<text>[^\]]*)\]\(figures/(?P<name>[\w-]+)\.svg\)$", re.MULTILINE)


def drawn(markdown: str) -> str:
    """Markdown with each drawing of `figures/` in place of its link."""
    return _IMAGE.sub(_figure, markdown)


def _figure(match: re.Match[str]) -> str:
    drawing = (FOLDER / f"{match['name']}.svg").read_text()
    # The file's own colours are for readers of the file alone.
    plain = re.sub(r"<style>.*?</style>|\s*\n\s*", "", drawing, flags=re.DOTALL)
    return f'<figure class="drawing" role="img" aria-label="{match["text"]}">{plain}</figure>'
