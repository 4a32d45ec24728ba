"""What every backbone must do under every ensemble, whichever of the three forms it ends in."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from cbe.data import Dataset
from cbe.errors import InputError
from cbe.nn import backbones, build
from cbe.nn.cost import cost
from cbe.spec import Network, TrainConfig
from cbe.spec.backbones import BACKBONES, Backbone, backbone_of
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.search import default_search
from cbe.training.run import Run
from cbe.training.step import train_step
from tests.conftest import small
from tests.contract import tiny_backbones

EXAMPLES = {  # the smallest of each family; the last two are made up
    "wrn-DEPTH-WIDTH": "wrn-10-1",
    "tokens-WIDTH": "tokens-20",
    "pooled-WIDTH": "pooled-20",
}
WITH_HEADS = ("model", "multihead", "channel")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_backbones.register(monkeypatch)


def config(model: str, ensemble: str, heads: int = 3) -> TrainConfig:
    many = {"heads": heads} if ensemble in WITH_HEADS else {}
    # A low threshold lets something pass from the first step on, so that every term has a gradient.
    return small(
        model={"name": model},
        ensemble={"kind": ensemble} | many,
        method={"name": "fixmatch", "threshold": 0.2},
        training={"device": "cpu"},
    )


def network(model: str, ensemble: str, heads: int = 3) -> Any:
    torch.manual_seed(0)
    return build(config(model, ensemble, heads), 1, 10)


def test_every_backbone_has_an_example() -> None:
    assert EXAMPLES.keys() == BACKBONES.keys()


@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("model", EXAMPLES.values())
def test_every_parameter_learns_in_one_step(model: str, ensemble: str, digits: Dataset) -> None:
    run = Run(config(model, ensemble), digits)
    before = {name: value.detach().clone() for name, value in run.network.named_parameters()}
    train_step(run)
    for name, parameter in run.network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, f"{name} gets no gradient"
        assert not torch.equal(before[name], parameter), f"{name} does not move"
    assert run.meter.read()["loss_unlabeled"]


@pytest.mark.parametrize("kind", ["channel", "multihead", "temporal", "model"])
@pytest.mark.parametrize("model", EXAMPLES.values())
def test_one_head_is_the_plain_network_bit_for_bit(model: str, kind: str) -> None:
    plain, other = network(model, "single"), network(model, kind, heads=1)
    theirs = list(other.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(theirs, plain.state_dict().values(), strict=True))
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(plain(images).logits, other(images).logits)


@pytest.mark.parametrize("model", EXAMPLES.values())
def test_a_backbone_has_the_features_that_its_description_promises(model: str) -> None:
    section, found = Network(name=model), backbone_of(model)
    made = backbones.build(section, 1)
    maps = backbones.as_map(made(torch.randn(2, 1, 8, 8)))
    assert maps.shape[:2] == (2, found.features) and maps.ndim == 4
    assert sum(parameter.numel() for parameter in made.parameters()) >= found.fewest_parameters
    assert made(torch.randn(0, 1, 8, 8)).shape[0] == 0  # by which operations are counted


@pytest.mark.parametrize(("model", "places"), [("tokens-20", 4), ("pooled-20", 1)])
def test_private_features_are_those_of_every_token_or_of_the_image(model: str, places: int) -> None:
    prediction = network(model, "channel")(torch.randn(2, 1, 8, 8))
    assert prediction.logits.shape == (2, 3, 10)
    assert prediction.private.shape == (2, 3, 2 * places)  # C_G = 0.1·20


def test_tokens_are_averaged_after_the_activation_as_the_places_of_a_map_are() -> None:
    plain = network("tokens-20", "single").eval()
    images = torch.randn(3, 1, 8, 8)
    tokens = plain.trunk(images)
    assert tokens.shape == (3, 4, 20)
    maps = plain.activate(plain.norm(tokens.transpose(1, 2).reshape(3, 20, 2, 2)))
    torch.testing.assert_close(plain(images).logits, plain.classify(maps.mean((2, 3))[:, None]))


def test_cost_counts_a_linear_layer_at_every_token() -> None:
    counted = cost(config("tokens-20", "single"), classes=10, channels=1, size=8, with_memory=True)
    assert counted.macs == 4 * (16 * 20 + 20 * 40 + 20 * 20) + 20 * 10
    assert counted.card_bytes


def test_nothing_of_a_backbone_is_built_to_check_a_file_and_to_choose_what_to_search() -> None:
    found = default_search(config("tokens-20", "channel"))["ensemble.private_channels"]
    assert (found.kind, found.low, found.high) == ("int", 1, 5)


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"model": "tokens-20", "data": {"size": 30}}, "sides of 4 to 128 pixels in steps of 4, not 30"),
        ({"model": "pooled-20", "data": {"channels": 3}}, "images of 1 channels, not 3; set data.channels"),
        ({"model": "tokens-x"}, "width 1 to 64, as wrn-28-2; or tokens-WIDTH, any width, as tokens-20"),
        ({"model": "wrn-11-1"}, "a network is wrn-DEPTH-WIDTH, depth 6n+4 from 10"),
    ],
)
def test_images_and_names_that_do_not_fit_are_refused_without_torch(
    sections: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(told)):
        TrainConfig.model_validate(sections)


def test_images_that_turn_out_not_to_fit_are_refused_before_training() -> None:
    with pytest.raises(InputError, match=r"tokens-20 does not fit the images: .*not 30; set data\.size"):
        cost(config("tokens-20", "single"), classes=10, channels=1, size=30)


def test_a_pretrained_backbone_normalises_as_it_was_trained(
    monkeypatch: pytest.MonkeyPatch, digits: Dataset
) -> None:
    def pretrained(features: int) -> Backbone:
        return replace(tiny_backbones.pooled(features), normalisation=((0.25,), (0.5,)))

    family = BACKBONES["pooled-WIDTH"]
    monkeypatch.setitem(BACKBONES, "pooled-WIDTH", replace(family, describe=pretrained))
    run = Run(config("pooled-20", "single"), digits)
    assert (run.mean.item(), run.std.item()) == (0.25, 0.5)
    assert (run.mean.item(), run.std.item()) != (digits.mean[0], digits.std[0])
