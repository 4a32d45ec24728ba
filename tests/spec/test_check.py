"""cbe check: what good files ask for, and all faults of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cbe.cli import check
from cbe.errors import ConfigError
from cbe.spec import StudyConfig

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))

COUNTS = "40 labeled, 1,293 unlabeled, 144 validation, 360 test"

DIGITS = f"  digits: {COUNTS}; 10 classes, 1×8×8; split 5e493c13eed302c8"


def test_checking_tells_what_good_files_ask_for_and_the_faults_of_all_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "study.yaml": "name: mine\nbudget: {trials: 12}\n",
        "train.yaml": "method: uda\n",
        "bad.yaml": "name: b\nsampler: tp\n",
        "worse.yaml": "training: {steps: 0}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in (*texts, "missing.yaml")]
    with pytest.raises(ConfigError) as caught:
        check.command(files, ["training.lr=0.1"])
    assert capsys.readouterr().out.splitlines() == [
        f"{files[0]}: study mine: 9 parameters searched, 12 trials + 12 to confirm, "
        "sampler prior, scheduler race",
        DIGITS,
        f"{files[1]}: training: uda, channel, wrn-28-2, 204,800 steps",
        DIGITS,
    ]
    told = [str(fault) for fault in caught.value.faults]
    assert [fault.split(": ")[0] for fault in told] == [
        f"{files[2]}:2 sampler.name",
        f"{files[3]}:1 training.steps",
        str(files[4]),
    ]
    assert "no such file" in told[2]


def test_a_study_that_samples_nothing_is_warned_of() -> None:
    two = {"name": "a", "budget": {"trials": 2}, "confirm": {"runs": 2}}
    assert [each[-32:] for each in StudyConfig.model_validate(two).warnings] == [
        "is sampled. Raise budget.trials."
    ]
    assert StudyConfig.model_validate(two | {"search": {}}).warnings == ()
    assert StudyConfig.model_validate(two | {"budget": {"trials": 3}}).warnings == ()


def test_checking_for_a_program_gives_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: mine\nsampler: grid\nscheduler: none\nsearch: {ensemble.heads: {int: [2, 4]}}\n")
    check.command([path], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["name"], found["parameters"], found["trials"]) == ("study", "mine", 1, 5)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_of_the_repository_passes_and_says_what_it_asks(path: Path) -> None:
    found = check.describe(path, check.read(path))
    assert found["kind"] == ("training" if path.stem.startswith("train-") else "study")
    assert found.get("name", path.stem) == path.stem
    header = [
        line.split(":")[0] for line in path.read_text().splitlines() if line.startswith("# ") and ":" in line
    ]
    assert [word for word in header if word in ("# Asks", "# Command", "# Cost", "# Result")] == [
        *("# Asks", "# Command", "# Cost", "# Result"),
    ]
