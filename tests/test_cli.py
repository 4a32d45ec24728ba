"""`cbe train` as a user meets it: real processes, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from cbe.store.run_folder import SCHEMA, RunFolder

QUICK = {
    "data": {"validation": 100},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.1},
    "training": {"steps": 6, "batch_size": 8, "unlabeled_ratio": 2, "eval_every": 2, "log_every": 1},
}


def cbe(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from cbe.cli import main; main()", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    return tmp_path


def test_training_leaves_its_config_split_metrics_checkpoint_and_result(quick: Path) -> None:
    done = cbe("train", "quick.yaml", "--method", "freematch", cwd=quick)
    assert done.returncode == 0, done.stderr
    assert "test error*" in done.stdout and "not used for selection" in done.stdout
    assert "median of last 20" in done.stdout and "best on validation" in done.stdout
    assert "40 labeled" in done.stderr and "step 6/6" in done.stderr
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


def test_a_used_folder_is_refused_and_nothing_of_it_is_lost(quick: Path) -> None:
    assert cbe("train", "quick.yaml", cwd=quick).returncode == 0
    before = (quick / "runs/quick/checkpoint.pt").read_bytes()
    again = cbe("train", "quick.yaml", cwd=quick)
    assert again.returncode == 2
    assert "holds a run already; go on with --resume, or choose another --out" in again.stderr
    assert (quick / "runs/quick/checkpoint.pt").read_bytes() == before


def test_labels_that_classes_cannot_share_equally_are_used_and_told(quick: Path) -> None:
    done = cbe("train", "quick.yaml", "--set", "data.labels=43", "--set", "training.steps=1", cwd=quick)
    assert done.returncode == 0
    assert "43 labeled" in done.stderr and "Labels are 4 to 5 a class" in done.stderr
    assert "1 steps are few for training.ema 0.999 and model.bn_momentum 0.1" in done.stderr


def test_json_is_all_there_is_on_stdout(quick: Path) -> None:
    done = cbe("train", "quick.yaml", "--json", "--out", "elsewhere", cwd=quick)
    answer = json.loads(done.stdout)
    assert answer["folder"] == "elsewhere" and answer["last"]["step"] == 6


def test_a_killed_run_resumes_to_the_result_of_an_unbroken_one(quick: Path) -> None:
    whole = json.loads(cbe("train", "quick.yaml", "--json", "--out", "whole", cwd=quick).stdout)
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
    resumed = cbe("train", "--resume", "--out", "broken", "--json", cwd=quick)
    assert resumed.returncode == 0, resumed.stderr
    answer = json.loads(resumed.stdout)
    assert (answer["last"], answer["best"]) == (whole["last"], whole["best"])
    assert RunFolder(quick / "broken").metrics()["step"].to_pylist() == [2, 4, 6]
    litter = [
        path.name for path in (quick / "broken").rglob(".*")
    ]  # of the killed writer, which nobody reads
    assert len(litter) <= 1


def test_a_run_that_has_no_checkpoint_yet_resumes_only_as_it_was_started(quick: Path) -> None:
    assert cbe("train", "quick.yaml", cwd=quick).returncode == 0
    (quick / "runs/quick/checkpoint.pt").unlink()
    changed = cbe("train", "quick.yaml", "--resume", "--set", "training.lr=0.5", cwd=quick)
    assert changed.returncode == 2
    assert "training.lr: the run was started with 0.03, now it is 0.5" in changed.stderr
    assert cbe("train", "quick.yaml", "--resume", cwd=quick).returncode == 0


def test_resuming_where_nothing_ran_is_refused(quick: Path) -> None:
    done = cbe("train", "--resume", "--out", "nowhere", cwd=quick)
    assert done.returncode == 2 and "no run to resume here" in done.stderr
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
def test_bad_input_is_one_message_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = cbe("train", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == "" and not (tmp_path / "runs").exists()


def test_a_loss_that_explodes_is_told_with_its_step(quick: Path) -> None:
    settings = ["--set", "training.lr=1e30", "--set", "training.steps=50", "--set", "training.eval_every=25"]
    done = cbe("train", "quick.yaml", *settings, cwd=quick)
    assert done.returncode == 1
    assert "loss is not finite at step" in done.stderr and "Traceback" not in done.stderr


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
