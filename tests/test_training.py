"""The loop and its parts: honesty, failure, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cbe.data import Dataset, ImageSet
from cbe.errors import CheckpointError, ConfigError, DataError, NonFiniteLoss
from cbe.spec import Training
from cbe.spec.registry import METHODS
from cbe.training import checkpoint
from cbe.training.batches import Sampler
from cbe.training.device import choose
from cbe.training.evaluate import Evaluator
from cbe.training.loop import Snapshot, train
from cbe.training.optimiser import learning_rate, make
from cbe.training.run import Run
from cbe.training.step import train_step
from cbe.training.summary import Evaluation, Summary
from tests.conftest import assert_same, small


def ignore(metrics: dict[str, Any], snapshot: Snapshot) -> None:
    pass


def with_labels(images: ImageSet, labels: np.ndarray[Any, Any]) -> ImageSet:
    return dataclasses.replace(images, labels=labels)


@pytest.mark.parametrize("method", METHODS)
def test_neither_true_nor_test_labels_change_what_is_learned_or_chosen(
    method: str, digits: Dataset, tmp_path: Path
) -> None:
    assert digits.test is not None
    poisoned = dataclasses.replace(
        digits,
        unlabeled=with_labels(digits.unlabeled, (digits.unlabeled.labels + 1) % 10),
        test=with_labels(digits.test, (digits.test.labels + 1) % 10),
    )
    ends, rows = [], []
    for name, data in (("honest", digits), ("poisoned", poisoned)):
        path = tmp_path / name
        reports: list[dict[str, Any]] = []

        def report(
            metrics: dict[str, Any], snapshot: Snapshot, path: Any = path, rows: Any = reports
        ) -> None:
            rows.append(metrics)
            snapshot.save(path)

        summary = train(small(method=method), data, report)
        ends.append((checkpoint.load(path)["run"], summary.best.step, summary.best.validation_error))
        rows.append(reports[-1])
    assert rows[0]["test_error"] != rows[1]["test_error"]
    if method not in ("supervised", "fixmatch", "pseudo-label", "uda"):  # those select nothing this early
        assert rows[0]["pseudo_confusion"] != rows[1]["pseudo_confusion"]
    assert rows[0]["validation_loss"] == rows[1]["validation_loss"] and rows[0]["loss"] == rows[1]["loss"]
    assert_same(ends[0], ends[1])


def test_unknown_truth_gives_no_accuracy_rather_than_a_wrong_one(digits: Dataset) -> None:
    blind = dataclasses.replace(
        digits, unlabeled=with_labels(digits.unlabeled, np.full_like(digits.unlabeled.labels, -1))
    )
    run = Run(small(method={"name": "fixmatch", "threshold": 0.1}), blind)
    train_step(run)
    figures = run.meter.read()
    assert figures["pseudo_accuracy"] is None
    assert figures["sampling_rate"] == 1


def test_every_report_has_all_figures_of_the_method(digits: Dataset) -> None:
    rows: list[dict[str, Any]] = []
    train(small(), digits, lambda metrics, snapshot: rows.append(metrics))
    row = rows[-1]
    assert [r["step"] for r in rows] == [2, 4]
    for name in ("validation_error", "test_error", "sampling_rate", "sampling_rate_ensemble"):
        assert 0 <= row[name] <= 1
    assert 0 <= row["head_correlation"] <= 1 and 0 <= row["head_disagreement"] <= 1
    assert 0 < row["variance_ensemble"] <= row["variance_heads"]  # lemma 2
    assert len(row["thresholds"]) == 10
    assert np.array(row["confusion"]).sum() == 100
    assert np.array(row["pseudo_confusion"]).shape == (10, 10)


def test_variance_of_the_ensemble_equals_that_of_one_head(digits: Dataset) -> None:
    rows: list[dict[str, Any]] = []
    train(small(ensemble="single"), digits, lambda metrics, snapshot: rows.append(metrics))
    assert rows[-1]["variance_ensemble"] == pytest.approx(rows[-1]["variance_heads"])
    assert rows[-1]["head_disagreement"] is None and rows[-1]["head_correlation"] is None


def test_evaluating_more_often_does_not_change_the_training(digits: Dataset) -> None:
    ends = []
    for every in (1, 4):
        rows: list[dict[str, Any]] = []
        train(small(training={"eval_every": every}), digits, lambda m, s, rows=rows: rows.append(m))
        ends.append((rows[-1]["validation_loss"], rows[-1]["head_correlation"]))
    assert ends[0] == ends[1]


def test_a_loss_that_is_not_finite_stops_with_the_step_and_the_terms(digits: Dataset, tmp_path: Path) -> None:
    kept: list[int] = []

    def save_then_break(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        snapshot.save(tmp_path / "checkpoint.pt")
        kept.append(metrics["step"])
        with torch.no_grad():
            snapshot.run.network.classify.weight.fill_(torch.nan)  # type: ignore[union-attr, operator]

    with pytest.raises(NonFiniteLoss) as caught:
        train(small(training={"steps": 20, "eval_every": 5, "log_every": 3}), digits, save_then_break)
    assert caught.value.step == 5
    assert math.isnan(caught.value.terms["labeled"]) and caught.value.terms["fairness"] == 0
    assert "step 5" in str(caught.value) and "labeled nan" in str(caught.value)
    assert kept == [5]
    good = checkpoint.load(tmp_path / "checkpoint.pt")["run"]["network"]
    assert all(value.isfinite().all() for value in good.values())


def test_an_update_that_breaks_the_model_is_not_checkpointed(digits: Dataset) -> None:
    reports: list[int] = []
    config = small(training={"lr": 1e38, "steps": 1, "eval_every": 1})
    with pytest.raises(NonFiniteLoss, match="step 1"):
        train(config, digits, lambda metrics, snapshot: reports.append(metrics["step"]))
    assert reports == []


def test_a_checkpoint_of_something_else_is_refused(digits: Dataset, tmp_path: Path) -> None:
    checkpoint.save({"run": {}}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="does not fit this run"):
        train(small(), digits, ignore, resume_from=tmp_path / "other.pt")


def test_constant_heads_correlate_with_nothing(digits: Dataset) -> None:
    run = Run(small(), digits)
    with torch.no_grad():
        run.ema.network.norm.weight.zero_()  # type: ignore[union-attr, operator]
    assert Evaluator(run)()["head_correlation"] == pytest.approx(0, abs=1e-6)


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


def test_summary_takes_the_median_of_the_last_twenty_and_the_best_on_validation() -> None:
    rows = [Evaluation(step, 1 / step, step / 100) for step in range(1, 31)]
    rows[14] = Evaluation(15, 0.0, 0.99)
    summary = Summary(tuple(rows))
    assert summary.last == rows[-1]
    assert summary.best == rows[14]
    assert summary.median.test_error == pytest.approx(0.215)
    assert json.loads(json.dumps(summary.to_plain()))["best"]["test_error"] == 0.99


def test_ties_on_validation_go_to_the_earliest_never_to_the_test_error() -> None:
    summary = Summary((Evaluation(1, 0.2, 0.5), Evaluation(2, 0.2, 0.1), Evaluation(3, 0.3, 0.0)))
    assert summary.best.step == 1


def test_a_sampler_visits_every_image_once_an_epoch_and_continues_from_its_state() -> None:
    sampler = Sampler(10, seed=3)
    epoch = torch.cat([sampler.draw(4), sampler.draw(4), sampler.draw(2)])
    assert sorted(epoch.tolist()) == list(range(10))
    sampler.draw(3)
    other = Sampler(10, seed=99)
    other.load_state_dict(sampler.state_dict())
    assert torch.equal(sampler.draw(25), other.draw(25))


def test_norms_and_biases_are_not_decayed(digits: Dataset) -> None:
    run = Run(small(), digits)
    decayed, plain = run.optimiser.param_groups
    names = {id(parameter): name for name, parameter in run.network.named_parameters()}
    assert decayed["weight_decay"] > 0 and plain["weight_decay"] == 0
    assert all("norm" in names[id(p)] or names[id(p)].endswith("bias") for p in plain["params"])
    assert not any("norm" in names[id(p)] or names[id(p)].endswith("bias") for p in decayed["params"])
    assert make(run.network, run.config.training).defaults["nesterov"]


def test_learning_rate_falls_along_seven_sixteenths_of_a_cosine() -> None:
    training = Training(steps=100, lr=0.03)
    assert learning_rate(training, 0) == 0.03
    assert learning_rate(training, 50) == pytest.approx(0.03 * math.cos(7 * math.pi / 32))
    assert learning_rate(training, 100) == pytest.approx(0.03 * math.cos(7 * math.pi / 16))


def test_ema_follows_parameters_slowly_and_copies_norm_statistics(digits: Dataset) -> None:
    run = Run(small(), digits)
    start = [p.clone() for p in run.ema.network.parameters()]
    train_step(run)
    pairs = zip(start, run.network.parameters(), run.ema.network.parameters(), strict=True)
    for was, now, mean in pairs:
        torch.testing.assert_close(mean, 0.9 * was + 0.1 * now.detach())
    for now, copied in zip(run.network.buffers(), run.ema.network.buffers(), strict=True):
        assert torch.equal(now, copied)


def test_bfloat16_on_a_cpu_and_unknown_devices_are_refused_with_a_next_step() -> None:
    with pytest.raises(ConfigError, match="use float32"):
        choose(Training(device="cpu", precision="bfloat16"))
    with pytest.raises(ConfigError, match="'warp' cannot be used here"):
        choose(Training(device="warp"))
    with pytest.raises(ConfigError, match="neither a CPU nor a CUDA device"):
        choose(Training(device="meta"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports torch.jit
def test_a_compiled_network_learns_the_same(digits: Dataset) -> None:
    plain, compiled = (Run(small(training={"compile": on}), digits) for on in (False, True))
    for _ in range(2):
        train_step(plain)
        train_step(compiled)
    for a, b in zip(plain.network.parameters(), compiled.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
