"""README is short, its links lead somewhere, and its examples do what it says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cbe.report.best import best
from cbe.spec import StudyConfig, read_config
from cbe.store.folder import Store
from cbe.verdicts import MOST_PAIRS
from docs.pictures.record import RECORD
from tests.conftest import Cbe

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
GUIDES = ["README.md", "CONTRIBUTING.md", "cluster/README.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_readme_can_be_read_to_its_end() -> None:
    assert len(README.splitlines()) <= 150
    assert max(map(len, README.splitlines())) <= 200


@pytest.mark.parametrize("name", GUIDES)
def test_every_link_leads_to_a_file_of_the_repository(name: str) -> None:
    guide = ROOT / name
    links = re.findall(r"(?:\]\(|src=\"|srcset=\")([^)\"]+)", guide.read_text("utf-8"))
    here = [link for link in links if "://" not in link]
    assert [link for link in here if not (guide.parent / link.partition("#")[0]).exists()] == []


def test_the_study_file_of_readme_is_one_in_nine_lines(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    assert len(text.splitlines()) == 9
    path = tmp_path / "pets.yaml"
    path.write_text(text, "utf-8")
    study = read_config(StudyConfig, path)
    assert study.name == "pets" and list(study.search) == ["ensemble.heads", "loss.weights.lb"]


def test_the_python_of_readme_runs_on_the_recorded_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECORD, tmp_path / "results/quickstart")
    (program,) = blocks("python")
    exec(compile(program, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert best(Store.open("results").study("quickstart")).sentence in printed
    assert "ensemble_heads" in printed and "pseudo_accuracy" in printed


def test_the_commands_and_targets_of_readme_exist(cbe_: Cbe) -> None:
    lines = [line.partition("#")[0].split() for block in blocks("console") for line in block.splitlines()]
    for command in {words[1] for words in lines if words and words[0] == "cbe"}:
        assert cbe_(command, "--help").code == 0, command
    targets = {words[1] for words in lines if words and words[0] == "make"}
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert targets and targets <= made


def test_the_errors_that_readme_tells_are_those_of_the_recorded_study() -> None:
    answer = best(Store.open(str(RECORD.parent)).study(RECORD.name))
    mean = {each.preset or "searched": f"{100 * each.mean:.1f} %" for each in answer.ranked}
    said = {each.preset or "searched": f"{100 * (each.searched or 0):.1f} %" for each in answer.ranked}
    told = " ".join(README.split())
    errors = f"{mean['base']}, {mean['paper']} and {mean['searched']}"
    assert f"Their validation errors are {errors}." in told
    assert f"{said['searched']} for its choice and {said['base']} for the base" in told
    chosen, paper = answer.ranked[0], next(each for each in answer.ranked if each.preset == "paper")
    assert (chosen.preset, chosen.verdict, paper.verdict) == (None, "better", "undecided")
    assert chosen.versus_base and f"{-100 * chosen.versus_base.mean:.1f} points (" in told
    needed = f"about {paper.pairs_needed}" if paper.pairs_needed else f"more than {MOST_PAIRS:,}"
    assert f"takes {needed} pairs" in told


def test_the_recorded_study_is_the_quickstart() -> None:
    recorded = Store.open(str(RECORD.parent)).study(RECORD.name).config()
    assert recorded == read_config(StudyConfig, ROOT / "studies/quickstart.yaml")
