"""A trained network with its normalisation: pixels in, probabilities out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cbe import nn as networks
from cbe.data.augment import normalize
from cbe.errors import InputError
from cbe.models.about import AGAIN, About

Weights = dict[str, Tensor]
_HEADER_BYTES = 2**24  # of names and shapes, at most


class Classifier(nn.Module):
    """Takes uint8 pixels [N, C, H, W]; answers what each head and their mean say."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, about: About, layout: torch.memory_format) -> None:
        super().__init__()
        self.network = network
        self.layout = layout
        # Tensors made as training makes them, so that not a bit differs.
        self.register_buffer("mean", torch.tensor(about.mean), persistent=False)
        self.register_buffer("std", torch.tensor(about.std), persistent=False)

    def logits(self, pixels: Tensor) -> Tensor:
        """[N, M, K]."""
        inputs = normalize(pixels, self.mean, self.std).contiguous(memory_format=self.layout)
        logits: Tensor = self.network(inputs).logits.float()
        return logits

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        return answers(self.logits(pixels))


def answers(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the heads' probabilities [N, K], and the heads' own [N, M, K]."""
    heads = logits.softmax(dim=2)
    return heads.mean(dim=1), heads


def outline(about: About) -> nn.Module:
    """The network without memory for its weights: what they must look like."""
    with torch.device("meta"):
        return networks.build(about.config, about.image.channels, len(about.classes))


def fewest_bytes(about: About) -> int:
    """Less than any file of a config's weights has; known without building what a config may ask for."""
    config = about.config
    networks_in_it = config.heads if config.ensemble.kind == "model" else 1
    return networks_in_it * 4 * config.model.backbone.fewest_parameters  # in float32


def most_bytes(network: nn.Module) -> int:
    """How large the file of a network's weights can be."""
    return _HEADER_BYTES + int(sum(each.nbytes for each in network.state_dict().values()))


def assemble(about: About, weights: Weights, where: str, layout: torch.memory_format) -> Classifier:
    """The network with its weights, for evaluation; refuses weights that are another network's."""
    network = outline(about)
    wanted = network.state_dict()
    for name in sorted(wanted.keys() | weights.keys()):
        want, have = _kind(wanted.get(name)), _kind(weights.get(name))
        if want != have:
            raise InputError(f"{where}: {name} is {have}; its config wants {want}; {AGAIN}")
    network = network.to_empty(device="cpu").to(memory_format=layout)  # type: ignore[call-overload]
    network.load_state_dict(weights)
    return Classifier(network, about, layout).eval().requires_grad_(False)


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
