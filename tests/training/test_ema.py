"""The mean of the weights that is evaluated: its decay and its BatchNorm statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cbe.training.ema import Ema


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def _train(network: nn.Module, ema: Ema, steps: int) -> list[dict[str, torch.Tensor]]:
    """Changes the weights and the statistics as training does; the network's state after each step."""
    states = []
    for step in range(steps):
        network(torch.randn(8, 3) + step)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(torch.randn_like(weight))
        states.append(copy.deepcopy(network.state_dict()))
        ema.update(step)
    return states


@pytest.mark.parametrize("warmup", [False, True])
def test_each_tensor_is_averaged_or_copied_as_a_loop_would(warmup: bool) -> None:
    network = _network()
    expected = copy.deepcopy(network.state_dict())
    ema = Ema(network, 0.9, warmup)
    for step, state in enumerate(_train(network, ema, 120)):
        decay = min(0.9, (1 + step) / (10 + step)) if warmup else 0.9
        for name, value in state.items():
            copied = "num_batches" in name or ("running" in name and not warmup)
            expected[name] = value if copied else decay * expected[name] + (1 - decay) * value
    found = ema.network.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_warm_up_forgets_the_initial_weights_at_once_and_ends_at_the_given_decay() -> None:
    ema = Ema(_network(), 0.98, warmup=True)
    assert ema.decay(0) == 0.1
    assert [ema.decay(step) for step in (439, 440, 10_000)] == pytest.approx([0.97996, 0.98, 0.98], abs=1e-5)
    assert Ema(_network(), 0.98, warmup=False).decay(0) == 0.98
