"""Imports point one way, and checking a file never loads torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cbe

ROOT = Path(cbe.__file__).parent

GUIDE = ROOT.parent / "CONTRIBUTING.md"
ROW = re.compile(r"^\| `cbe/(?P<place>[\w/.]+)` \| (?P<holds>.+) \| (?P<allowed>[^|]+) \|$", re.MULTILINE)


def rows() -> list[re.Match[str]]:
    """The table of CONTRIBUTING that says where code belongs."""
    return list(ROW.finditer(GUIDE.read_text("utf-8")))


# What a package may import from beside itself.
ALLOWED = {
    row["place"].removesuffix(".py"): {name for name in row["allowed"].split(", ") if name != "–"}
    for row in rows()
    if "/" not in row["place"]
}
KNOW_RAY = (
    "study/",
    "training/launch.py",
    "service/queue/ray_jobs",
    "cluster/check.py",
    "cluster/fallback.py",
    "cluster/manifest_groups.py",
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


def test_the_guide_names_folders_and_modules_that_exist() -> None:
    missing = []
    for row in rows():
        place = ROOT / row["place"]
        names = re.findall(r"`([\w/]+)`", row["holds"])
        if not place.exists() or (place.is_dir() and not (place / "__init__.py").exists()):
            missing.append(row["place"])
        missing += [f"{row['place']}: {name}" for name in names if not found_in(place, name)]
    assert missing == []


def found_in(place: Path, name: str) -> bool:
    return any((place / path).exists() for path in (f"{name}.py", name)) or "." in name


def test_every_folder_is_in_the_guide() -> None:
    listed = {row["place"] for row in rows()}
    folders = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("*/__init__.py")}
    for large in ("study", "service"):
        folders |= {str(path.parent.relative_to(ROOT)) for path in (ROOT / large).glob("*/__init__.py")}
    assert folders - listed == set()


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
