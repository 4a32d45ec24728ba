"""The documentation: complete references, examples that run, a site that loads nothing from elsewhere."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from cbe.service.clients.service import Client
from cbe.spec import StudyConfig, TrainConfig
from cbe.store.schema import TABLES
from docs.hooks import filled
from docs.reference import commands, python_api, rest, store, study_file
from tests.made import finished

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
READMES = (ROOT / "README.md", ROOT / "cluster" / "README.md")
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
VARIABLE = re.compile(r"\bCBE_[A-Z_]+\b")
COMMANDS = dict(commands.commands())


def fences(kind: str, *paths: Path) -> list[Any]:
    return [
        pytest.param(found["text"], id=f"{path.parent.name}/{path.stem}-{number}")
        for path in paths
        for number, found in enumerate(FENCE.finditer(path.read_text()), 1)
        if found["kind"] == kind
    ]


def cbe_commands(text: str) -> Iterator[list[str]]:
    """The commands of `cbe` in a fence of a terminal, as words."""
    for line in text.replace("\\\n", " ").splitlines():
        if not re.search(r"(^|&& )cbe ", line.strip()):
            continue
        part: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word not in ("&&", "|", ";", ">"):
                part.append(word)
                continue
            if part[:1] == ["cbe"]:
                yield part[1:]
            part = []


def test_every_key_of_a_study_file_is_described() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", study_file.generate(), re.MULTILINE)
    described = dict(rows)
    keys = study_file.keys()
    assert len(keys) > 60
    assert [key for key in keys if key not in described] == []
    assert [key for key, row in described.items() if not row.split(" | ")[0].strip()] == [], (
        "no meaning given"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    _, _, section = f"\n{commands.generate()}\n## ".partition(f"\n## {name}\n")
    section = section.partition("\n## ")[0]
    assert section.strip()
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            assert all(f"`{option}`" in section for option in parameter.opts)
        assert parameter.help, f"{name} {parameter.name} has no help"


def test_every_variable_of_the_environment_is_described() -> None:
    read = {name for path in (ROOT / "cbe").rglob("*.py") for name in VARIABLE.findall(path.read_text())}
    rows = re.findall(r"^\| `(CBE_\w+)` \|", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert "CBE_STORE" in read
    assert sorted(rows) == sorted(read)


def test_every_route_of_the_service_is_described() -> None:
    text = rest.generate()
    routes = list(rest.routes())
    assert len(routes) > 20
    assert [path for method, path, _ in routes if f"\n## {method} {path}\n" not in text] == []
    assert [name for name in rest.description()["components"]["schemas"] if f"### {name}\n" not in text] == []


def test_every_column_of_the_store_is_described() -> None:
    text = store.generate()
    for name, table in TABLES.items():
        _, _, section = text.partition(f"### {name}\n")
        section = section.partition("\n### ")[0]
        assert [column for column in table.schema.names if f"| `{column}` |" not in section] == []
    known = {column for table in TABLES.values() for column in table.schema.names}
    assert set(store.MEANINGS) <= known, "a column is described that does not exist"


def test_every_public_name_of_python_is_described() -> None:
    text = python_api.generate()
    assert [name for name in python_api.names() if f"### cbe.{name}\n" not in text] == []
    for kind in python_api.CLASSES:
        _, _, section = text.partition(f"### {kind.__module__}.{kind.__name__}\n")
        section = section.partition("\n### ")[0]
        assert [name for name, _ in python_api.methods(kind) if f"#### {name}\n" not in section] == []


@pytest.mark.parametrize("text", fences("yaml", *PAGES, READMES[0]))
def test_yaml_in_the_docs_is_a_study_or_training_file(text: str) -> None:
    plain = yaml.safe_load(text)
    (StudyConfig if "name" in plain else TrainConfig).model_validate(plain)


@pytest.mark.parametrize("text", fences("console", *PAGES, *READMES))
def test_commands_in_the_docs_exist_with_their_options(text: str) -> None:
    for words in cbe_commands(text):
        name = next(f"cbe {' '.join(words[:n])}" for n in (1, 2) if f"cbe {' '.join(words[:n])}" in COMMANDS)
        command = COMMANDS[name]
        arguments = words[len(name.split()) - 1 :]
        command.make_context(name, arguments)  # refuses options and values that it does not have


@pytest.mark.parametrize("text", fences("python", *PAGES))
def test_python_in_the_docs_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "cbe.connect" in text:
        calls = re.findall(r"\bstudies\.(\w+)\(", text)
        assert calls and all(inspect.isfunction(getattr(Client, name)) for name in calls)
        compile(text, "example", "exec")
        return
    finished(tmp_path / "results", "quickstart")
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "example", "exec"), {"__name__": "example"})


def test_the_site_is_built_without_warnings_and_asks_nothing_of_others(tmp_path: Path) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)  # raises at a warning
    pages = list(tmp_path.rglob("*.html"))
    assert {page.stem for page in pages} >= {path.stem for path in PAGES} | {"first-study"}
    for page in pages:
        html = page.read_text()
        assert re.findall(r'(?:src|<link[^>]+href)="?(https?://[^" >]+)', html) == [], page.name
        assert "<!-- generated" not in html and "MATHML" not in html, page.name
    assert "<math" in (tmp_path / "methods.html").read_text()
    assert (tmp_path / "concepts.html").read_text().count('<figure class="drawing"') == 4


def test_pages_name_generators_that_exist() -> None:
    marked = [path.stem for path in PAGES if "<!-- generated" in path.read_text()]
    assert marked == ["benchmarks", "cli", "clusters", "python", "rest", "store", "study-file"]
    assert "| 0.97 |" in filled((ROOT / "docs" / "benchmarks.md").read_text()), "as recorded"
