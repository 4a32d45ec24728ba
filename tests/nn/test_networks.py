"""Networks and ensembles: counts, equality of the one-head cases, and what each head reads."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from cbe import nn
from cbe.cli import app
from cbe.nn.cost import cost
from cbe.spec import TrainConfig


def config(ensemble: dict[str, object] | str, model: str = "wrn-28-2") -> TrainConfig:
    return TrainConfig.model_validate({"ensemble": ensemble, "model": model})


def build(ensemble: dict[str, object] | str, model: str = "wrn-10-1", channels: int = 3) -> torch.nn.Module:
    torch.manual_seed(0)
    return nn.build(config(ensemble, model), channels, 10)


def count(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_wrn_28_2_has_the_published_number_of_parameters() -> None:
    assert count(build("single", "wrn-28-2")) == 1_467_610


def test_five_heads_of_twelve_private_channels_add_a_convolution_a_wider_norm_and_heads() -> None:
    base = count(build("single", "wrn-28-2"))
    expanded = build({"kind": "channel", "heads": 5, "private_channels": 12}, "wrn-28-2")
    assert count(expanded.expand) == 128 * 176 + 176 == 22_704
    assert count(expanded.norm) - 2 * 128 == 96
    assert count(expanded.classify) - (128 * 10 + 10) == 5_160
    assert count(expanded) == base + 22_704 + 96 + 5_160 == 1_495_570


@pytest.mark.parametrize("kind", ["channel", "multihead", "temporal", "model"])
def test_one_head_is_the_plain_network_bit_for_bit(kind: str) -> None:
    plain = build("single")
    ensemble: dict[str, object] = {"kind": kind, "heads": 1}
    other = build(ensemble)
    theirs = list(other.state_dict().values())
    assert [tuple(t.shape) for t in theirs] == [tuple(t.shape) for t in plain.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(theirs, plain.state_dict().values(), strict=True))
    images = torch.randn(4, 3, 16, 16)
    assert torch.equal(plain(images).logits, other(images).logits)


def test_each_head_reads_the_shared_channels_and_its_own_private_ones_only() -> None:
    network = build({"kind": "channel", "heads": 3, "private_channels": 5}).eval()
    maps = torch.randn(2, network.shared_channels + 15, 1, 1)
    network.trunk = network.expand = network.norm = network.activate = torch.nn.Identity()
    before = network(maps).logits
    changed = maps.clone()
    changed[:, network.shared_channels + 5 : network.shared_channels + 10] += 1  # head 1's
    moved = (network(changed).logits != before).all(dim=2).all(dim=0)
    assert moved.tolist() == [False, True, False]
    changed = maps.clone()
    changed[:, 0] += 1
    assert (network(changed).logits != before).all()


def test_heads_equal_separate_linear_layers() -> None:
    network = build({"kind": "channel", "heads": 4, "private_channels": 6}).eval()
    images = torch.randn(3, 3, 16, 16)
    maps = network.activate(network.norm(network.expand(network.trunk(images))))
    pooled, shared = maps.mean((2, 3)), network.shared_channels
    for head in range(4):
        own = pooled[:, shared + 6 * head : shared + 6 * (head + 1)]
        features = torch.cat([pooled[:, :shared], own], dim=1)
        assert features.shape[1] == 64
        wanted = torch.nn.functional.linear(
            features, network.classify.weight[head], network.classify.bias[head]
        )
        torch.testing.assert_close(network(images).logits[:, head], wanted)


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (28, 1), (33, 3), (128, 3)])
@pytest.mark.parametrize("name", ["wrn-10-1", "wrn-16-3"])
def test_any_depth_width_and_size_gives_one_prediction_a_head(name: str, size: int, channels: int) -> None:
    network = build({"kind": "channel", "heads": 3}, name, channels)
    prediction = network(torch.randn(2, channels, size, size))
    assert prediction.logits.shape == (2, 3, 10)
    assert prediction.private is not None
    assert prediction.private.shape[:2] == (2, 3)


def test_cost_counts_the_expansion_that_the_paper_left_out() -> None:
    base = cost(config("single"), classes=10, channels=3, size=32)
    cbe = cost(
        config({"kind": "channel", "heads": 5, "private_channels": 12}), classes=10, channels=3, size=32
    )
    assert base.macs == 214_351_872 + 1_280
    assert cbe.macs - base.macs == 128 * 176 * 64 + 4 * 1_280
    assert cbe.parameters - base.parameters == 27_960


def test_cost_command_prints_an_object_for_programs() -> None:
    asked = "cost --model wrn-28-2 --ensemble channel --heads 5 --private-channels 12 --classes 10 --json"
    result = CliRunner().invoke(app, asked.split())
    answer = json.loads(result.stdout)
    assert (answer["parameters"], answer["macs"]) == (1_495_570, 215_800_064)


def test_cost_table_names_every_ensemble() -> None:
    result = CliRunner().invoke(app, ["cost", "--model", "wrn-10-1"])
    assert all(name in result.stdout for name in ("single", "model", "temporal", "multihead", "channel"))
