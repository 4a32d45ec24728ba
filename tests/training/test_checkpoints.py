"""What a checkpoint holds, what it refuses, and what a resumed run may change."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cbe.data import Dataset
from cbe.errors import CheckpointError, ConfigError, DataError
from cbe.training import checkpoint
from cbe.training.loop import Snapshot, train
from cbe.training.optimiser import learning_rate
from cbe.training.run import Run
from tests.conftest import small


def ignore(metrics: dict[str, Any], snapshot: Snapshot) -> None:
    pass


def test_a_checkpoint_of_something_else_is_refused(digits: Dataset, tmp_path: Path) -> None:
    checkpoint.save({"run": {}}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="does not fit this run"):
        train(small(), digits, ignore, resume_from=tmp_path / "other.pt")


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from cbe.errors import CheckpointError
from cbe.training import checkpoint

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write past the limit then fails as on a full disk
path = Path(sys.argv[1])
checkpoint.save({"weights": torch.zeros(10)}, path)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    checkpoint.save({"weights": torch.randn(1_000_000)}, path)
except CheckpointError as error:
    print(error)
    sys.exit(3)
"""


def test_a_full_disk_leaves_the_old_checkpoint_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "the previous checkpoint is kept" in done.stdout
    assert checkpoint.load(path)["weights"].tolist() == [0] * 10
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_a_checkpoint_is_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"version": 1, "run": subprocess.Popen}, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(path)
    with pytest.raises(CheckpointError, match="no checkpoint to resume"):
        checkpoint.load(tmp_path / "missing.pt")


def test_resuming_with_another_config_or_split_is_refused(digits: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    train(small(), digits, lambda metrics, snapshot: snapshot.save(path))
    with pytest.raises(ConfigError, match=r"training\.lr: the run was started with 0\.03, now it is 0\.1"):
        train(small(training={"lr": 0.1}), digits, ignore, resume_from=path)
    other = dataclasses.replace(digits.split, labeled=digits.split.labeled[:-1])
    with pytest.raises(DataError, match="label split"):
        train(small(), dataclasses.replace(digits, split=other), ignore, resume_from=path)


def test_a_finished_run_resumes_to_its_summary_without_a_step(digits: Dataset, tmp_path: Path) -> None:
    path, steps = tmp_path / "checkpoint.pt", []
    summary = train(small(), digits, lambda metrics, snapshot: snapshot.save(path))
    again = train(small(), digits, lambda m, s: steps.append(m), resume_from=path)
    assert again == summary and steps == []


def first_half(tmp_path: Path, digits: Dataset, **sections: Any) -> Path:
    """The checkpoint of two steps of four."""
    path = tmp_path / "half.pt"

    def keep(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        assert snapshot.step == metrics["step"]
        if snapshot.step == 2:
            snapshot.save(path)

    train(small(**sections), digits, keep)
    return path


def gone_on(path: Path, digits: Dataset, changed: str, **sections: Any) -> tuple[dict[str, Any], Run]:
    """The report and the run one step after a checkpoint, under another config."""
    reports: list[tuple[dict[str, Any], Run]] = []

    def keep(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        reports.append((metrics, snapshot.run))
        raise Stopped

    every = {"eval_every": 1, **sections.pop("training", {})}
    with pytest.raises(Stopped):
        train(
            small(training=every, **sections),
            digits,
            keep,
            resume_from=path,
            changed={changed, "training.eval_every"},
        )
    return reports[0]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("method", ["fixmatch", "flexmatch"])
def test_a_resumed_run_uses_a_changed_threshold(method: str, digits: Dataset, tmp_path: Path) -> None:
    path = first_half(tmp_path, digits, method={"name": method, "threshold": 0.95})
    _, run = gone_on(path, digits, "method.threshold", method={"name": method, "threshold": 0.05})
    assert run.step == 3
    state = checkpoint.load(path)["run"]["policy"]
    if method == "fixmatch":
        assert (run.policy.per_class() == 0.05).all() and (state["threshold"] == 0.95).all()
    else:  # at .05 every image of the step counts as confident
        never = len(digits.classes)
        assert (state["chosen"] == never).all() and (run.policy.state_dict()["chosen"] != never).any()


def test_a_resumed_run_uses_changed_weights_of_the_loss(digits: Dataset, tmp_path: Path) -> None:
    path = first_half(tmp_path, digits)
    row, _ = gone_on(path, digits, "loss.weights.lb", loss={"weights": {"lb": 7.0}})
    terms = {name: row[f"loss_{name}"] for name in ("labeled", "unlabeled", "lb", "lv")}
    assert terms["lb"] > 0.1
    assert row["loss"] == pytest.approx(sum(terms.values()) + 6 * terms["lb"], rel=1e-5)


def test_a_resumed_run_uses_changed_settings_of_the_optimiser(digits: Dataset, tmp_path: Path) -> None:
    path = first_half(tmp_path, digits)
    before = checkpoint.load(path)["run"]["network"]
    moves = []
    for rate in (0.03, 0.06):
        row, run = gone_on(path, digits, "training.lr", training={"lr": rate})
        assert row["lr"] == learning_rate(run.config.training, 2)
        moves.append([value.detach() - before[name] for name, value in run.network.named_parameters()])
    for slow, fast in zip(*moves, strict=True):
        torch.testing.assert_close(fast, 2 * slow, rtol=1e-3, atol=1e-6)
    _, run = gone_on(path, digits, "training.weight_decay", training={"weight_decay": 0.25})
    assert [group["weight_decay"] for group in run.optimiser.param_groups] == [0.25, 0]
    _, run = gone_on(path, digits, "training.momentum", training={"momentum": 0.5})
    assert {group["momentum"] for group in run.optimiser.param_groups} == {0.5}


def test_only_settings_that_are_named_may_change(digits: Dataset, tmp_path: Path) -> None:
    path = first_half(tmp_path, digits)
    other = small(training={"lr": 0.1, "ema": 0.5}, loss={"agreement": 0.6})
    with pytest.raises(ConfigError) as caught:
        train(other, digits, ignore, resume_from=path, changed={"training.lr"})
    assert [fault.where for fault in caught.value.faults] == ["loss.agreement", "training.ema"]
