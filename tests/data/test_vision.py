"""torchvision is imported through one module, which makes it importable."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOOR = ROOT / "cbe/data/vision.py"


def imported(tree: ast.AST) -> set[str]:
    """The top-level names of all modules that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_torchvision_imports_in_a_fresh_process_without_a_warning() -> None:
    program = (
        "from cbe.data.vision import datasets, transforms, v2\n"
        "assert datasets.CIFAR10 and transforms.Compose and v2.RandomCrop"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_torchvision_is_imported_nowhere_else() -> None:
    files = [file for folder in ("cbe", "tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    importers = {file for file in files if "torchvision" in imported(ast.parse(file.read_text()))}
    assert importers == {DOOR}


def test_data_and_a_start_from_the_cache_do_not_wait_for_torch() -> None:
    program = (
        "import sys, cbe.data, cbe.data.sources.parquet, cbe.data.sources.torchvision_sets\n"
        "assert not {'torch', 'torchvision', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
