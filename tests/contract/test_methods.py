"""What every method with every ensemble must do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cbe.data import Dataset
from cbe.nn import Prediction
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.methods import METHODS
from cbe.training.loop import Snapshot, train
from cbe.training.run import Run
from cbe.training.step import teach, train_step
from tests.conftest import assert_same, small

VOLATILE = {"steps_per_s"}


def config(method: str, ensemble: str, **training: object) -> Any:
    heads = {"heads": 3} if "ensemble.heads" in ENSEMBLES[ensemble].takes else {}
    # A low threshold lets something pass from the first step on, so that every term has a gradient.
    threshold = {"threshold": 0.2} if "method.threshold" in METHODS[method].takes else {}
    return small(
        method={"name": method, "ramp": 0.0} | threshold,
        ensemble={"kind": ensemble} | heads,
        training=training,
    )


@pytest.mark.parametrize("forward", ["joint", "split"])
@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_learns_and_neither_teacher_nor_ema_does(
    method: str, ensemble: str, forward: str, digits: Dataset
) -> None:
    run = Run(config(method, ensemble, forward=forward), digits)
    before = {name: value.detach().clone() for name, value in run.network.named_parameters()}
    train_step(run)
    for name, parameter in run.network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, f"{name} gets no gradient"
        assert not torch.equal(before[name], parameter), f"{name} does not move"
    assert all(p.grad is None and not p.requires_grad for p in run.ema.network.parameters())
    assert all(not buffer.requires_grad for buffer in run.policy.buffers())
    figures = run.meter.read()
    assert figures["loss"] is not None and figures["loss"] > 0
    if method != "supervised":
        assert figures["sampling_rate"] is not None and figures["sampling_rate"] > 0
        assert figures["loss_unlabeled"]


@pytest.mark.parametrize("ensemble", ["single", "temporal", "channel"])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "supervised"])
def test_unlabeled_images_alone_move_every_parameter(method: str, ensemble: str, digits: Dataset) -> None:
    wanted = config(method, ensemble)
    weights = wanted.loss.weights.model_copy(update={"labeled": 0.0, "lb": 0.0, "lv": 0.0})
    run = Run(wanted.model_copy(update={"loss": wanted.loss.model_copy(update={"weights": weights})}), digits)
    train_step(run)
    for name, parameter in run.network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, f"{name} gets no gradient"


class NoReads(TorchDispatchMode):
    """Refuses what makes the host wait for a device: reading a value, or a shape that depends on values."""

    WAITING = (
        torch.ops.aten._local_scalar_dense,
        torch.ops.aten.nonzero,
        torch.ops.aten.masked_select,
        torch.ops.aten.bincount,
        torch.ops.aten.equal,
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket not in self.WAITING, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("ensemble", ["single", "temporal", "channel"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_never_waits_for_the_device(method: str, ensemble: str, digits: Dataset) -> None:
    run = Run(config(method, ensemble), digits)
    with NoReads():
        train_step(run)
    with pytest.raises(AssertionError, match="waits for the device"), NoReads():
        run.mean.sum().item()


@pytest.mark.parametrize("ensemble", ["single", "temporal", "channel"])
def test_nothing_flows_back_through_the_teacher(ensemble: str, digits: Dataset) -> None:
    run = Run(config("fixmatch", ensemble), digits)
    batch = run.batches.draw()
    logits = torch.randn(len(batch.indices), run.config.heads, 10, requires_grad=True)
    taught = teach(run, Prediction(logits, None), batch)
    assert not taught.requires_grad
    torch.testing.assert_close(taught.sum(dim=2), torch.ones_like(taught[:, :, 0]))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("ensemble", ["single", "channel"])
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    method: str, ensemble: str, digits: Dataset, tmp_path: Path
) -> None:
    # Labels come round every five steps, within each half.
    check_resume(config(method, ensemble, steps=12, eval_every=6), digits, tmp_path)


@pytest.mark.parametrize("forward", ["joint", "split"])
@pytest.mark.parametrize("ensemble", ["model", "temporal", "multihead"])
def test_resuming_is_exact_for_every_ensemble_and_forward(
    ensemble: str, forward: str, digits: Dataset, tmp_path: Path
) -> None:
    check_resume(config("freematch", ensemble, steps=8, eval_every=4, forward=forward), digits, tmp_path)


def check_resume(wanted: Any, digits: Dataset, tmp_path: Path) -> None:
    half = wanted.training.steps // 2
    whole: list[dict[str, Any]] = []
    halves: list[dict[str, Any]] = []

    def record(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        whole.append(metrics)
        snapshot.save(tmp_path / f"whole-{metrics['step']}.pt")

    def record_and_break(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        halves.append(metrics)
        snapshot.save(tmp_path / f"parts-{metrics['step']}.pt")
        if metrics["step"] == half:
            raise Interrupted

    summary = train(wanted, digits, record)
    with pytest.raises(Interrupted):
        train(wanted, digits, record_and_break)
    resumed = train(wanted, digits, record_and_break, resume_from=tmp_path / f"parts-{half}.pt")
    assert resumed == summary
    assert [strip(row) for row in halves] == [strip(row) for row in whole]
    ends = [
        torch.load(tmp_path / f"{name}-{2 * half}.pt", weights_only=True)["run"]
        for name in ("whole", "parts")
    ]
    assert_same(*ends)


def strip(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name not in VOLATILE}
