"""What MkDocs calls when it builds the site: puts generated references into their pages.

A page says where: `<!-- generated: commands -->` stands for `docs.reference.commands.generate()`, and
`<!-- generated: records.forward -->` for that function.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # MkDocs loads this file by its path

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

from docs.reference import equations, figures, notebook

_GENERATED = re.compile(r"<!-- generated: (\w+)(?:\.(\w+))? -->")
_SHIM = "https://unpkg.com/iframe-worker/shim"  # of the plugin `offline`; `style/worker.js` is ours
_NOTEBOOK = re.compile(r"(?<=\]\()([\w/-]+)\.ipynb")  # links to the file, which the site shows as a page
_equations: dict[str, list[str]] = {}  # by page


def on_files(files: Any, config: Any) -> Any:
    """Shows each notebook as a page."""
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        address = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, address, content=notebook.to_markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fills a page in."""
    shown = figures.drawn(filled(_NOTEBOOK.sub(r"\1.md", markdown)))
    text, _equations[page.file.src_uri] = equations.taken_out(shown)
    return text


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Puts back what Markdown was not to touch."""
    return equations.put_back(html, _equations.pop(page.file.src_uri))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Takes the theme's one script from elsewhere out."""
    return output.replace(_SHIM, get_relative_url("style/worker.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same on pages that have no text of ours, as 404.html."""
    return output_content.replace(_SHIM, "style/worker.js")


def filled(markdown: str) -> str:
    """A page's Markdown with its generated parts."""
    return _GENERATED.sub(lambda match: _function(match[1], match[2] or "generate")(), markdown)


def _function(module: str, name: str) -> Callable[[], str]:
    found: Callable[[], str] = getattr(import_module(f"docs.reference.{module}"), name)
    return found
