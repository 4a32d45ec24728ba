"""Two real data-parallel processes take the same steps as one with the same global batch."""

from __future__ import annotations

import copy
import datetime
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn

from cbe.data import open_dataset
from cbe.errors import ConfigError, NonFiniteLoss
from cbe.nn.norm import synchronise
from cbe.spec import TrainConfig
from cbe.spec.methods import METHODS
from cbe.ssl.world import World
from cbe.training.loop import Snapshot, train
from cbe.training.run import Run
from cbe.training.step import train_step
from tests.conftest import assert_same, small

STEPS = 6
Figures = dict[str, Tensor]


def config(method: str = "fixmatch", ensemble: str = "channel", forward: str = "split", **loss: Any) -> Any:
    """A threshold in the midst of the confidences, and a number of validation images that is not even."""
    chosen = {"threshold": 0.2} if method in ("pseudo-label", "uda", "fixmatch", "flexmatch") else {}
    return small(
        data={"validation": 101},
        # Where an activation is 0 to the last digit, the order of a sum decides on which side of the kink it
        # lies, and one worker that starts with weights an ulp away goes other ways within a few steps too.
        # An almost straight LeakyReLU has no such kink.
        model={"name": "wrn-10-1", "leak": 0.99},
        method={"name": method, "momentum": 0.9, **chosen},
        ensemble={"kind": ensemble} | ({"heads": 3} if ensemble in ("model", "multihead", "channel") else {}),
        loss=loss,
        training={"batch_size": 16, "steps": STEPS, "forward": forward, "lr": 0.03},
    )


CASES: dict[str, TrainConfig] = {
    **{method: config(method) for method in METHODS},
    **{
        f"{ensemble} {forward}": config(ensemble=ensemble, forward=forward)
        for ensemble in ("single", "multihead", "model", "temporal")
        for forward in ("joint", "split")
    },
    "channel joint": config(forward="joint"),
    "ring": config(lb_pairs="ring"),
}


def join(rank: int, folder: str) -> World:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=limit)
    return World(dist.group.WORLD)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A folder, and what each of two workers answers to all that is asked of them here."""
    folder = tmp_path_factory.mktemp("workers")
    processes.spawn(_answer, (str(folder),), nprocs=2)  # type: ignore[no-untyped-call]
    return folder, [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _answer(rank: int, folder: str) -> None:
    world = join(rank, folder)
    answer = {"norm": normalise(world), "gather": gather_with_gradient(world)}
    answer |= {"steps": {name: follow(wanted, world) for name, wanted in CASES.items()}}
    answer |= {"loop": loop(world, folder)}  # last: it ends with a worker that fails
    torch.save(answer, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


Workers = tuple[Path, list[Any]]


def follow(wanted: TrainConfig, world: World) -> dict[str, Any]:
    """Everything that six steps tell and leave."""
    run = Run(wanted, open_dataset(wanted.data), world)
    fresh = copy.deepcopy(run.policy.state_dict())
    rows: list[Figures] = []
    for _ in range(STEPS):
        train_step(run)
        figures = run.meter.read() | {"confusion": run.meter.confusion()}
        rows.append({name: torch.tensor(value) for name, value in figures.items() if value is not None})
        rows[-1]["thresholds"] = run.policy.per_class().clone()
        run.meter.reset()
    return {"rows": rows, "end": run.state_dict(), "fresh": fresh}


def deviations(one: Figures, two: Figures, rtol: float, atol: float) -> list[str]:
    assert one.keys() == two.keys()
    return [
        f"{name}: {(one[name] - two[name]).abs().max():.1e} of {one[name].abs().max():.1e}"
        for name in one
        if not torch.allclose(one[name], two[name], rtol, atol)
    ]


def test_two_workers_take_the_steps_of_one_with_the_same_batch(workers: Workers) -> None:
    first, second = (answer["steps"] for answer in workers[1])
    wrong: list[str] = []
    for name, wanted in CASES.items():
        one, two = follow(wanted, World()), first[name]
        assert_same(two, second[name], name)  # thresholds, weights, buffers, figures: to the bit
        for step, (alone, together) in enumerate(zip(one["rows"], two["rows"], strict=True)):
            # What remains is the order in which floats are summed, and what six steps make of it: 1e-7 in the
            # first, 2e-5 in the last. A confidence this near to its threshold would fall on another side.
            rtol = 1e-5 if step < 2 else 1e-3
            wrong += [f"{name}, step {step}, {why}" for why in deviations(alone, together, rtol, rtol / 100)]
        for kept in ("network", "ema", "policy", "past"):
            alone, together = one["end"][kept], two["end"][kept]
            wrong += [f"{name}, {kept}, {why}" for why in deviations(alone, together, 1e-3, 1e-4)]
        if wanted.method.name in ("flexmatch", "freematch", "softmatch"):
            for key, value in one["fresh"].items():
                assert not torch.equal(value, one["end"]["policy"][key]), f"{key} did not move"
    assert wrong == []


class Broken(Exception):
    pass


def loop(world: World, folder: str) -> dict[str, Any]:
    """What `train` reports, what it raises when a loss is not finite, and when rank 0 alone fails."""
    rows: list[dict[str, Any]] = []

    def report(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        rows.append({name: value for name, value in metrics.items() if name != "steps_per_s"})
        if world.rank == 0 and snapshot.step == STEPS // 2:
            snapshot.save(Path(folder) / "half.pt")

    def fail(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        if world.rank == 0:
            raise Broken("no space left")

    wanted = in_two_halves()
    data = open_dataset(wanted.data)
    answer: dict[str, Any] = {"best": train(wanted, data, report, world=world).best["step"], "rows": rows}
    diverging = wanted.model_copy(update={"training": wanted.training.model_copy(update={"lr": 1e38})})
    for name, given, reporter in (("nan", diverging, report), ("failed", wanted, fail)):
        try:
            train(given, data, reporter, world=world)
        except (NonFiniteLoss, Broken, RuntimeError) as error:
            answer[name] = f"{type(error).__name__}: {error}"
    return answer


def in_two_halves() -> TrainConfig:
    wanted = CASES["freematch"]
    halves = wanted.training.model_copy(update={"eval_every": STEPS // 2})
    return wanted.model_copy(update={"training": halves})


def test_workers_report_alike_checkpoint_for_any_number_and_end_together(workers: Workers) -> None:
    folder, answers = workers
    first, second = (answer["loop"] for answer in answers)
    assert first["rows"] == second["rows"] and first["best"] == second["best"]
    wanted = in_two_halves()
    data, alone = open_dataset(wanted.data), []
    train(wanted, data, lambda metrics, snapshot: alone.append(metrics))
    train(wanted, data, lambda metrics, snapshot: alone.append(metrics), resume_from=folder / "half.pt")
    assert [row["step"] for row in alone] == [3, 6, 6]  # the last was begun by two workers
    for one, two in zip(alone, [*first["rows"], first["rows"][-1]], strict=True):
        assert one.keys() - {"steps_per_s"} == two.keys()
        for name in ("loss", "validation_loss", "head_correlation", "variance_heads", "thresholds"):
            assert two[name] == pytest.approx(one[name], rel=1e-3), name
        for name in ("confusion", "pseudo_confusion"):
            assert sum(map(sum, two[name])) == pytest.approx(sum(map(sum, one[name])), rel=1e-3), name
    assert first["nan"] == second["nan"] and first["nan"].startswith("NonFiniteLoss")
    assert first["failed"] == "Broken: no space left"
    # The other does not wait for one that is gone.
    assert second["failed"].startswith("RuntimeError") and "imed out" not in second["failed"]


def normalise(world: World) -> dict[str, Tensor]:
    """A worker's share of `whole_batch` through a synchronised norm, forward and backward."""
    assert world.group is not None
    network = nn.Sequential(nn.BatchNorm2d(3, momentum=0.1))
    plain = copy.deepcopy(network)
    plain.load_state_dict(some_state())
    synchronise(network, world.group, torch.device("cpu"))
    network.load_state_dict(plain.state_dict())
    images, direction = (
        x[world.rank :: 2].contiguous(memory_format=torch.channels_last) for x in whole_batch()
    )
    images.requires_grad_()
    seen = network(images)
    assert seen.is_contiguous(memory_format=torch.channels_last) and seen.dtype == torch.float32
    (seen * direction).sum().backward()
    plain.load_state_dict(network.state_dict())
    assert torch.equal(network.eval()(images), plain.eval()(images))
    assert network(images.bfloat16()).dtype == network.train()(images.bfloat16()).dtype == torch.bfloat16
    weight, bias = network.parameters()
    grads = {"x": images.grad, "weight": weight.grad, "bias": bias.grad}
    return {"seen": seen.detach(), **grads, **plain.state_dict()}  # type: ignore[dict-item]


def whole_batch() -> tuple[Tensor, Tensor]:
    """Images whose channels lie far from 0 or hardly vary, and where the loss pulls."""
    generator = torch.Generator().manual_seed(0)
    images, direction = torch.randn(2, 6, 3, 4, 5, generator=generator)
    scale, offset = torch.tensor([[1.0, 30.0, 0.01], [0.0, -300.0, 2.0]])[:, :, None, None]
    return images * scale + offset, direction


def some_state() -> dict[str, Tensor]:
    vectors = {
        name: torch.tensor([0.5, 1.5, 2.0]) for name in ("weight", "bias", "running_mean", "running_var")
    }
    return {
        f"0.{name}": value for name, value in (vectors | {"num_batches_tracked": torch.tensor(7)}).items()
    }


def test_a_synchronised_norm_equals_one_that_sees_the_whole_batch(workers: Workers) -> None:
    first, second = (answer["norm"] for answer in workers[1])
    exact = nn.Sequential(nn.BatchNorm2d(3, momentum=0.1))
    exact.load_state_dict(some_state())
    exact.double()
    images, direction = (x.double() for x in whole_batch())
    images.requires_grad_()
    seen = exact(images)
    (seen * direction).sum().backward()
    for name, value in {"seen": seen, "x": images.grad}.items():
        for rank, worker in enumerate((first, second)):
            torch.testing.assert_close(worker[name].double(), value[rank::2], rtol=1e-3, atol=1e-3)  # type: ignore[index]
    weight, bias = exact.parameters()
    for name, parameter in {"weight": weight, "bias": bias}.items():
        torch.testing.assert_close(
            (first[name] + second[name]).double(), parameter.grad, rtol=1e-4, atol=1e-4
        )
    for name, value in exact.state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name].to(value.dtype), value, rtol=1e-5, atol=1e-5)


def test_a_gpu_gets_the_norm_of_torch_under_the_same_names() -> None:
    network = Run(config(), open_dataset(config().data)).network
    before = dict(network.state_dict(keep_vars=True))
    synchronise(network, None, torch.device("cuda"))  # type: ignore[arg-type]
    kinds = {type(part) for part in network.modules()}
    assert nn.SyncBatchNorm in kinds and nn.BatchNorm2d not in kinds
    after = network.state_dict(keep_vars=True)
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)


def gather_with_gradient(world: World) -> Tensor | None:
    rows = torch.tensor([[1.0 + world.rank], [3.0 + world.rank]], requires_grad=True)
    world.gather(rows).square().mean().backward()  # type: ignore[no-untyped-call]
    return rows.grad


def test_a_loss_over_gathered_rows_has_the_gradient_of_the_whole_batch(workers: Workers) -> None:
    averaged = [answer["gather"] / 2 for answer in workers[1]]
    whole = torch.tensor([[1.0], [3.0], [2.0], [4.0]], requires_grad=True)
    whole.square().mean().backward()  # type: ignore[no-untyped-call]
    assert whole.grad is not None
    torch.testing.assert_close(torch.cat(averaged), whole.grad)


def test_a_batch_that_workers_cannot_share_equally_is_refused() -> None:
    class Three(World):
        size = 3

    wanted = config("freematch")
    with pytest.raises(ConfigError, match="16 cannot be shared equally by 3 workers"):
        Run(wanted, open_dataset(wanted.data), Three())
