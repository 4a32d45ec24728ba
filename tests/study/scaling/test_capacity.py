"""What a cluster holds, by the machines it can have: without Ray's being started."""

from __future__ import annotations

import pytest

from cbe.errors import InputError
from cbe.nn.memory import CONTEXT, memory
from cbe.spec import TrainConfig
from cbe.ssl import resolve
from cbe.study.scaling.cluster import MachineGroup, Size, capacity, card, resources
from tests.study.conftest import study

HEAD = MachineGroup({"CPU": 0, "node:__internal_head__": 1})
SMALL = MachineGroup({"CPU": 4, "GPU": 1, "gpu_16gb": 1}, 8, "small")
LARGE = MachineGroup({"CPU": 32, "GPU": 4, "gpu_16gb": 4, "gpu_80gb": 4}, 2, "large")
GROWING = Size((HEAD, SMALL, LARGE), 11, idle_s=300)


@pytest.mark.parametrize(
    ("wanted", "concurrent"),
    [
        ({}, 16),  # a card each where there are any
        ({"gpus": 0.5}, 32),
        ({"gpus": 2}, 4),  # the small ones have none that could be put together
        ({"gpus": 1, "cpus": 16}, 4),
        ({"gpus": 0}, 96),
        ({"gpus": 1, "workers": 4}, 4),
        ({"gpus": 1, "concurrent": 3}, 3),
    ],
)
def test_a_cluster_that_grows_holds_as_many_trials_as_at_its_largest(
    wanted: dict[str, float], concurrent: int
) -> None:
    found = capacity(study(resources={"concurrent": None, **wanted}), GROWING)
    assert found.concurrent == concurrent
    assert not found.alone


def test_a_trial_that_fits_on_no_machine_is_refused() -> None:
    with pytest.raises(InputError, match="the cluster has 96 CPU and 16 GPU at most"):
        capacity(study(resources={"concurrent": None, "gpus": 8}), GROWING)


def test_one_machine_that_nobody_adds_to_is_alone() -> None:
    found = capacity(study(), Size((MachineGroup({"CPU": 2}),), 1))
    assert found.alone
    assert resources(found, card(found, 10 * 2**30)) == {"CPU": 1}


@pytest.mark.parametrize(
    ("gpus", "needs_gb", "asked"),
    [
        (1, 3, {"gpu_16gb": 1}),
        (1, 16, {"gpu_16gb": 1}),
        (1, 17, {"gpu_80gb": 1}),
        (0.5, 9, {"gpu_80gb": 0.5}),  # half a card of 16 GB holds 8
        (2, 30, {"gpu_80gb": 2}),  # a worker's batch is on one card, however many it has
        (1, 200, {"gpu_80gb": 1}),  # an upper estimate: it may fit
    ],
)
def test_a_trial_asks_for_the_smallest_card_that_holds_it(
    gpus: float, needs_gb: int, asked: dict[str, float]
) -> None:
    found = capacity(study(resources={"gpus": gpus}), GROWING)
    assert card(found, needs_gb * 2**30) == asked
    assert resources(found, asked) == {"CPU": 1, "GPU": gpus, **asked}


def test_memory_grows_with_what_a_step_holds() -> None:
    def of(**sections: object) -> int:
        config = resolve(TrainConfig.model_validate({"model": "wrn-10-1", **sections}))
        return memory(config, classes=10, channels=3, size=32) - CONTEXT

    base = of(ensemble="single")
    assert base < of(ensemble="channel") < 1.1 * base  # the paper's point
    assert 4 * base < of(ensemble={"kind": "model", "heads": 5}) < 6 * base
    assert 1.8 * base < of(ensemble="single", training={"batch_size": 64}) < 2.2 * base
    assert 1.6 * base < of(ensemble="single", training={"forward": "joint"}) < 2.0 * base
