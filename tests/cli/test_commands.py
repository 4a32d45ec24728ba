"""`cbe train` as a user meets it: real files, and real processes where they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from cbe.cli import app
from cbe.store.run_folder import SCHEMA, RunFolder
from tests.conftest import Cbe

QUICK = {
    "data": {"validation": 100},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.1},
    "training": {"steps": 6, "batch_size": 8, "unlabeled_ratio": 2, "eval_every": 2, "log_every": 1},
}


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    return tmp_path


def test_training_leaves_its_config_split_metrics_checkpoint_and_result(quick: Path, cbe_: Cbe) -> None:
    done = cbe_("train", "quick.yaml", "--method", "freematch")
    assert done.code == 0, done.err
    assert "test error*" in done.out and "not used for selection" in done.out
    assert "median of last 20" in done.out and "best on validation" in done.out
    assert "40 labeled" in done.err and "step 6/6" in done.err
    folder = RunFolder(quick / "runs/quick")
    table = folder.metrics()
    assert table.schema.equals(SCHEMA)
    assert table["step"].to_pylist() == [2, 4, 6]
    assert None not in table["validation_error"].to_pylist() + table["test_error"].to_pylist()
    config = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert config["method"]["name"] == "freematch" and config["ensemble"]["heads"] == 5
    result = json.loads((folder.path / "result.json").read_text())
    assert result["split"] == json.loads((folder.path / "split.json").read_text())["digest"]
    assert pq.read_table(folder.path / "metrics").num_rows == 3


def test_a_used_folder_is_refused_and_nothing_of_it_is_lost(quick: Path, cbe_: Cbe) -> None:
    assert cbe_("train", "quick.yaml").code == 0
    before = (quick / "runs/quick/checkpoint.pt").read_bytes()
    again = cbe_("train", "quick.yaml")
    assert again.code == 2
    assert "holds a run already; go on with --resume, or choose another --out" in again.err
    assert (quick / "runs/quick/checkpoint.pt").read_bytes() == before


def test_labels_that_classes_cannot_share_equally_are_used_and_told(quick: Path, cbe_: Cbe) -> None:
    done = cbe_("train", "quick.yaml", "--set", "data.labels=43", "--set", "training.steps=1")
    assert done.code == 0
    assert "43 labeled" in done.err and "Classes have 4 to 5 labels each." in done.err
    assert "1 step is few for training.ema 0.999 and model.bn_momentum 0.1" in done.err


def test_json_is_all_there_is_on_stdout(quick: Path, cbe_: Cbe) -> None:
    done = cbe_("train", "quick.yaml", "--json", "--out", "elsewhere")
    answer = json.loads(done.out)
    assert answer["folder"] == "elsewhere" and answer["last"]["step"] == 6


def test_a_killed_run_resumes_to_the_result_of_an_unbroken_one(quick: Path, cbe_: Cbe) -> None:
    whole = json.loads(cbe_("train", "quick.yaml", "--json", "--out", "whole").out)
    command = [
        sys.executable,
        "-c",
        "from cbe.cli import main; main()",
        "train",
        "quick.yaml",
        "--out",
        "broken",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=quick, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 4/"):  # the bar moves before the report is kept: step 2 is, 4 may be
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    kept = RunFolder(quick / "broken").metrics()["step"].to_pylist()
    assert kept in ([2], [2, 4])
    resumed = cbe_("train", "--resume", "--out", "broken", "--json")
    assert resumed.code == 0, resumed.err
    answer = json.loads(resumed.out)
    assert (answer["last"], answer["best"]) == (whole["last"], whole["best"])
    assert RunFolder(quick / "broken").metrics()["step"].to_pylist() == [2, 4, 6]
    litter = [
        path.name for path in (quick / "broken").rglob(".*")
    ]  # of the killed writer, which nobody reads
    assert len(litter) <= 1


def test_a_run_that_has_no_checkpoint_yet_resumes_only_as_it_was_started(quick: Path, cbe_: Cbe) -> None:
    assert cbe_("train", "quick.yaml").code == 0
    (quick / "runs/quick/checkpoint.pt").unlink()
    changed = cbe_("train", "quick.yaml", "--resume", "--set", "training.lr=0.5")
    assert changed.code == 2
    assert "training.lr: the run was started with 0.03, now it is 0.5" in changed.err
    assert cbe_("train", "quick.yaml", "--resume").code == 0


def test_resuming_where_nothing_ran_is_refused(quick: Path, cbe_: Cbe) -> None:
    done = cbe_("train", "--resume", "--out", "nowhere")
    assert done.code == 2 and "no run to resume here" in done.err
    assert not (quick / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "fixmtch"], "did you mean fixmatch?"),
        (["--set", "data.labels=3"], "3 labels do not reach all 10 classes; give at least 10"),
        (["--set", "data.label_indices=[1,1]"], "given more than once"),
        (["--data", "folder", "--set", "data.path=missing"], "missing"),
        (["--set", "training.device=warp"], "cannot be used here"),
        (["missing.yaml"], "no such file"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, cbe_: Cbe
) -> None:
    done = cbe_("train", *arguments)
    assert done.code == 2, done.err
    assert message in done.err and "Traceback" not in done.err
    assert done.out == "" and not (tmp_path / "runs").exists()


def test_a_study_file_is_not_taken_for_a_training_file(tmp_path: Path, cbe_: Cbe) -> None:
    (tmp_path / "pets.yaml").write_text("name: pets\nbudget: {trials: 3}\n")
    done = cbe_("train", "pets.yaml")
    assert done.code == 2 and "pets.yaml: is a study file; run it with `cbe run pets.yaml`" in done.err


def test_a_loss_that_explodes_is_told_with_its_step(quick: Path, cbe_: Cbe) -> None:
    settings = ["--set", "training.lr=1e30", "--set", "training.steps=50", "--set", "training.eval_every=25"]
    done = cbe_("train", "quick.yaml", *settings)
    assert done.code == 1
    assert "loss is not finite at step" in done.err and "Traceback" not in done.err


def test_an_interrupted_run_says_how_to_go_on(quick: Path) -> None:
    command = [sys.executable, "-c", "from cbe.cli import main; main()", "train", "quick.yaml"]
    command += ["--set", "training.steps=100000"]
    process = subprocess.Popen(command, cwd=quick, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130
    assert "Go on with: cbe train --resume --out runs/quick" in rest and "Traceback" not in rest


def _leaves(command: Any, name: str = "cbe") -> Iterator[tuple[str, Any]]:
    for each, inner in getattr(command, "commands", {}).items():
        yield from _leaves(inner, f"{name} {each}")
    if not hasattr(command, "commands"):
        yield name, command


def test_the_help_of_every_command_says_what_each_option_does() -> None:
    import typer

    lacking = []
    for name, command in _leaves(typer.main.get_command(app)):
        if not str(command.help).partition("\n")[0].endswith("."):
            lacking.append(name)
        for option in command.params:
            if option.name != "help" and not str(getattr(option, "help", None) or "").strip():
                lacking.append(f"{name} {option.name}")
    assert lacking == []
