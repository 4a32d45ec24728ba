"""Imports point one way, and checking a file never loads torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cbe

ROOT = Path(cbe.__file__).parent

# What a package may import from beside itself.
ALLOWED = {
    "errors": set(),
    "files": set(),
    "words": {"spec"},
    "environment": set(),
    "clouds": {"errors"},
    "verdicts": {"spec"},
    "names": set(),
    "configs": {"names", "verdicts", "spec"},
    "spec": {"errors", "clouds"},
    "data": {"errors", "clouds", "spec"},
    "nn": {"errors", "spec"},
    "ssl": {"errors", "spec"},
    "training": {"errors", "files", "environment", "spec", "data", "nn", "ssl"},
    "store": {"errors", "files", "clouds", "spec"},
    "report": {"errors", "files", "words", "verdicts", "names", "configs", "spec", "store"},
    "models": {
        *("errors", "files", "configs", "spec"),
        *("data", "nn", "ssl", "training", "store", "report"),
    },
    "study": {
        *("errors", "files", "words", "verdicts", "names", "configs", "environment", "spec", "cluster"),
        *("data", "nn", "ssl", "training", "store"),
    },
    "service": {
        *("errors", "files", "words", "environment", "spec"),
        *("store", "study", "report", "models"),
    },
    "cluster": {"errors", "files", "clouds", "spec"},
    "local": {"errors", "spec", "store", "study", "report", "cli"},
    "cli": {
        *("errors", "words", "configs", "spec", "data", "nn", "ssl", "training"),
        *("store", "models", "report", "study", "service", "cluster"),
    },
}
KNOW_RAY = (
    "study/",
    "training/launch.py",
    "service/queue/ray_jobs",
    "cluster/check.py",
    "cluster/fallback.py",
)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if package in ("__init__", "__main__"):
            continue
        for name in imported(path):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if top == "cbe" and other in ALLOWED and other not in ALLOWED[package] | {package}:
                wrong.append(f"{path.relative_to(ROOT)} imports cbe.{other}")
            if top == "ray" and not str(path.relative_to(ROOT)).startswith(KNOW_RAY):
                wrong.append(f"{path.relative_to(ROOT)} imports ray")
    assert wrong == []


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {
        path.name.removesuffix(".py") for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert packages - {"__init__", "__main__", "__pycache__", "py.typed"} == set(ALLOWED)


def test_reading_a_config_and_asking_for_help_do_not_wait_for_torch() -> None:
    code = (
        "import sys; import cbe.cli; from cbe.spec import read_config, TrainConfig; read_config(TrainConfig)"
    )
    check = f"{code}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


def test_a_model_needs_neither_ray_nor_a_store_a_plan_no_ray_and_a_study_not_torchs_compiler() -> None:
    check = (
        "import sys\n"
        "import cbe.models.model\n"
        "assert not {'ray', 'pyarrow'} & set(sys.modules)\n"
        "import cbe.study.budget.plan\n"
        "assert 'ray' not in sys.modules\n"
        "import cbe.study.engine\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
