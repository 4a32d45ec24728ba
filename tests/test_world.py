"""Two real data-parallel processes hold the same thresholds and take the same steps as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from cbe.data import open_dataset
from cbe.errors import ConfigError
from cbe.ssl.world import World
from cbe.training.run import Run
from cbe.training.step import train_step
from tests.conftest import small

STEPS = 3


def config(method: str) -> Any:
    threshold = {"threshold": 0.15} if method == "flexmatch" else {}
    # Each worker normalises over its own share, so states are compared with one worker's only roughly.
    return small(method={"name": method, "momentum": 0.5, **threshold}, training={"forward": "split"})


def work(rank: int, method: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    wanted = config(method)
    run = Run(wanted, open_dataset(wanted.data), World(dist.group.WORLD))
    for _ in range(STEPS):
        train_step(run)
    state = {"policy": run.policy.state_dict(), "network": run.network.state_dict()}
    torch.save(state, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("method", ["flexmatch", "freematch", "softmatch"])
def test_workers_share_the_state_of_a_threshold_policy(method: str, tmp_path: Path) -> None:
    processes.spawn(work, (method, str(tmp_path)), nprocs=2)  # type: ignore[no-untyped-call]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    for name, value in first["policy"].items():
        assert torch.equal(value, second["policy"][name]), name
    for name, value in first["network"].items():
        if "running" not in name:  # each worker's own batch statistics
            assert torch.equal(value, second["network"][name]), name
    alone = Run(config(method), open_dataset(config(method).data))
    fresh = {name: value.clone() for name, value in alone.policy.state_dict().items()}
    for _ in range(STEPS):
        train_step(alone)
    for name, value in alone.policy.state_dict().items():
        assert not torch.equal(value, fresh[name]), f"{name} did not move"
        if value.is_floating_point():
            error = (first["policy"][name] - value).norm()
            assert error < 0.25 * (value - fresh[name]).norm(), name


def gather_with_gradient(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    rows = torch.tensor([[1.0 + rank], [3.0 + rank]], requires_grad=True)
    World(dist.group.WORLD).gather(rows).square().mean().backward()  # type: ignore[no-untyped-call]
    torch.save(rows.grad, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_a_loss_over_gathered_rows_has_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    processes.spawn(gather_with_gradient, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    averaged = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) / 2 for rank in range(2)]
    whole = torch.tensor([[1.0], [3.0], [2.0], [4.0]], requires_grad=True)
    whole.square().mean().backward()  # type: ignore[no-untyped-call]
    assert whole.grad is not None
    torch.testing.assert_close(torch.cat(averaged), whole.grad)


def test_a_batch_that_workers_cannot_share_equally_is_refused() -> None:
    class Three(World):
        size = 3

    wanted = config("freematch")
    with pytest.raises(ConfigError, match="8 cannot be shared equally by 3 workers"):
        Run(wanted, open_dataset(wanted.data), Three())
