"""A notebook as Markdown: its text, its code, and what the code printed and drew."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def to_markdown(path: Path) -> str:
    """All cells of a notebook, in order."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell))


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(_output(each) for each in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _text(output["text"])
    data = output["data"]
    if "image/svg+xml" in data:
        _, _, drawing = "".join(data["image/svg+xml"]).partition("<svg")
        return f'<div class="drawing"><svg{_one_line(drawing)}</div>'
    if "image/png" in data:
        return f"![plot](data:image/png;base64,{''.join(data['image/png']).strip()})"
    if "text/html" in data:
        table = re.sub("<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        return _one_line(re.sub("<table[^>]*>", "<table>", table))  # in the theme's own style
    return _text(data["text/plain"])


def _one_line(html: str) -> str:
    """HTML without line breaks, at which Markdown would take over again."""
    return " ".join(html.split())


def _text(text: list[str] | str) -> str:
    return f"```text\n{''.join(text).rstrip()}\n```"
