"""The notebook of the documentation, run in a real kernel with a Ray of its own.

Its outputs are kept in the repository. `jupyter execute --inplace` renews them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent.parent.parent / "docs" / "notebooks" / "first-study.ipynb"
LARGEST = 100_000  # bytes, outputs included


@pytest.mark.ray
def test_the_notebook_runs_a_study_asks_plots_and_predicts(tmp_path: Path) -> None:
    kept = nbformat.read(NOTEBOOK, 4)
    ran = nbformat.read(NOTEBOOK, 4)
    for cell in ran.cells:
        cell.pop("outputs", None)
    NotebookClient(ran, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [kinds(cell) for cell in ran.cells]
    assert {"text", "image/png", "text/html"} <= set().union(*shown)
    assert shown == [kinds(cell) for cell in kept.cells], "outputs of another kind are kept in the repository"


def kinds(cell: Any) -> set[str]:
    """What a cell printed or drew; Ray sends Jupyter an empty piece of HTML, which says nothing."""
    found = set()
    for output in cell.get("outputs", ()):
        rich = [kind for kind in ("image/png", "text/html") if kind in output.get("data", {})]
        if not rich or output["data"][rich[0]]:
            found.add(rich[0] if rich else "text")
    return found


def test_the_notebook_is_kept_small_and_names_nothing_of_the_machine_that_ran_it() -> None:
    text = NOTEBOOK.read_text()
    assert len(text.encode()) < LARGEST
    assert not [word for word in ("/tmp/", "/home/", str(Path.home()), "Traceback") if word in text]
