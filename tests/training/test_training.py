"""The loop and its parts: honesty and failure."""

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

from cbe.data import Dataset, ImageSet, Pool, Stats, open_dataset
from cbe.errors import ConfigError, NonFiniteLoss
from cbe.spec import Training
from cbe.spec.methods import METHODS
from cbe.training import checkpoint
from cbe.training.batches import Sampler
from cbe.training.device import choose
from cbe.training.evaluate import Evaluator
from cbe.training.loop import Snapshot, train
from cbe.training.optimiser import learning_rate, make
from cbe.training.run import Run
from cbe.training.step import train_step
from cbe.training.summary import Summary
from cbe.training.threads import advice
from tests.conftest import assert_same, small


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
        test=with_labels(digits.test, np.zeros_like(digits.test.labels)),
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
        ends.append((checkpoint.load(path)["run"], summary.best["step"], summary.best["validation_error"]))
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


def test_constant_heads_correlate_with_nothing(digits: Dataset) -> None:
    run = Run(small(), digits)
    with torch.no_grad():
        run.ema.network.norm.weight.zero_()  # type: ignore[union-attr, operator]
    assert Evaluator(run)()["head_correlation"] == pytest.approx(0, abs=1e-6)


def test_summary_takes_the_median_of_the_last_twenty_and_the_best_on_validation() -> None:
    rows = [{"step": step, "validation_error": 1 / step, "test_error": step / 100} for step in range(1, 31)]
    rows[14] = {"step": 15, "validation_error": 0.0, "test_error": 0.99}
    summary = Summary(rows)
    assert summary.last == rows[-1]
    assert summary.best == rows[14]
    assert summary.median["test_error"] == pytest.approx(0.215)
    assert json.loads(json.dumps(summary.to_plain()))["best"]["test_error"] == 0.99


def test_ties_on_validation_go_to_the_earliest_never_to_the_test_error() -> None:
    errors = ((1, 0.2, 0.5), (2, 0.2, 0.1), (3, 0.3, 0.0))
    rows = [{"step": step, "validation_error": one, "test_error": other} for step, one, other in errors]
    assert Summary(rows).best["step"] == 1


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


def test_without_a_warm_up_the_ema_follows_parameters_slowly_and_copies_norm_statistics(
    digits: Dataset,
) -> None:
    run = Run(small(training={"ema_warmup": False}), digits)
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


def read_only(count: int, known: bool, seed: int) -> ImageSet:
    """Images as a store of shared objects gives them."""
    rng = np.random.default_rng(seed)
    images, labels = rng.integers(0, 256, (count, 3, 16, 16), dtype=np.uint8), np.arange(count) % 3
    images.flags.writeable = False
    return ImageSet(images, labels if known else np.full(count, -1))


def eager(images: ImageSet) -> ImageSet:
    return ImageSet(np.array(images.images), images.labels)


@pytest.mark.parametrize("own_unlabeled", [False, True])
def test_training_on_shared_images_equals_training_on_copies_bit_for_bit(own_unlabeled: bool) -> None:
    own = read_only(40, False, 1) if own_unlabeled else None
    pool = Pool(read_only(60, True, 0), own, read_only(30, True, 2), ("a", "b", "c"), True)
    config = small(method="flexmatch", data={"labels": 12, "validation": 15})
    data = open_dataset(config.data, pool=(pool, Stats((0.5,) * 3, (0.3,) * 3)))
    assert data.test is not None and data.unlabeled.base is (own or pool.train).base
    copies = dataclasses.replace(
        data,
        labeled=eager(data.labeled),
        unlabeled=eager(data.unlabeled),
        validation=eager(data.validation),
        test=eager(data.test),
    )
    shared, copied = Run(config, data), Run(config, copies)
    for _ in range(5):  # more than an epoch
        train_step(shared)
        train_step(copied)
    assert_same(shared.state_dict(), copied.state_dict())
    assert_same(Evaluator(shared)(), Evaluator(copied)())


MEMORY = """
import sys
import numpy as np
from cbe.data import ImageSet, Pool, Stats, open_dataset
from cbe.training.evaluate import Evaluator
from cbe.training.run import Run
from cbe.training.step import train_step
from tests.conftest import small

def own_mib():
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) / 2**10 for line in status if line.startswith("RssAnon"))

def grown_mib(train, own=None):
    config = small(method="flexmatch", data={"labels": 1000, "validation": 500})
    before = own_mib()
    pool = Pool(train, own, None, tuple("abcdefghij"), True)
    run = Run(config, open_dataset(config.data, pool=(pool, Stats((0.5,) * 3, (0.3,) * 3))))
    for _ in range(3):
        train_step(run)
    Evaluator(run)()
    return own_mib() - before

every = ImageSet(np.load(sys.argv[1], mmap_mode="r"), np.arange(int(sys.argv[2])) % 10)
some = every.take(np.arange(3000))
grown_mib(some)  # what a step itself needs stays with the process
print(grown_mib(every), grown_mib(some, every))
before = own_mib()
copied = np.array(every.images)
print(own_mib() - before)
"""


def test_a_run_takes_memory_for_none_of_the_shared_images(tmp_path: Path) -> None:
    size_mib, path = 200, tmp_path / "images.npy"
    count = size_mib * 2**20 // (3 * 16 * 16)
    np.save(path, np.zeros((count, 3, 16, 16), np.uint8))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, path, str(count)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    trained_on, joined, copied = map(float, done.stdout.split())
    assert copied > 0.5 * size_mib  # some of it fits into what earlier steps left
    # Labels, rows and the order of an epoch are kept: a few bytes an image.
    assert trained_on < 0.2 * size_mib and joined < 0.2 * size_mib


@pytest.mark.parametrize(("several", "told"), [(0.38, True), (3.0, False), (7.0, False)])
def test_threads_that_wait_for_busy_cores_are_told_and_left_as_they_are(several: float, told: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        line = advice(lambda: 3.8 if torch.get_num_threads() == 1 else several)
        assert torch.get_num_threads() == 2
        assert line == (
            "Other processes probably use these cores: one thread is about 10 times as fast as 2 now. "
            "To use one, stop and start again with OMP_NUM_THREADS=1."
            if told
            else None
        )
        torch.set_num_threads(1)
        assert advice(lambda: 1.0) is None
    finally:
        torch.set_num_threads(before)
