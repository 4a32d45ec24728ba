"""Models that somebody else made or changed: refused with what is wrong."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from cbe.errors import InputError
from cbe.models.about import About
from cbe.models.model import Model

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain.update(format=2), "of format 2, written by a newer cbe-studies"),
        (lambda plain: plain.update(format="1"), "format: Input should be 1"),
        (lambda plain: plain.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda plain: plain.pop("classes"), "classes: Field required"),
        (lambda plain: plain["classes"].append("0"), "wanted every name once"),
        (
            lambda plain: plain["classes"].append("ten"),
            r"classify.bias is float32 \[3, 10\].*wants.*\[3, 11\]",
        ),
        (lambda plain: plain["std"].append(1.0), "mean and std: wanted 1 values each"),
        (lambda plain: plain.update(std=[0.0]), "std.0: Input should be greater than 0"),
        (lambda plain: plain["image"].update(height=10**9), "image.height"),
        (lambda plain: plain["calibration"].update(temperature=float("nan")), "calibration.temperature"),
        (lambda plain: plain["config"]["ensemble"].update(kind="os.system"), "no ensemble of that name"),
        (lambda plain: plain["config"]["model"].update(name="wrn-1000-64"), "too small for wrn-1000-64"),
        (lambda plain: plain["config"]["ensemble"].update(heads=2), r"classify.bias is float32 \[3, 10\]"),
        (lambda plain: plain.update(weights_sha256="0" * 64), "damaged, or another model's"),
    ],
)
def test_a_foreign_description_is_refused(own: Path, change: Change, message: str) -> None:
    plain = json.loads((own / "model.json").read_text())
    change(plain)
    (own / "model.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match=message):
        Model.load(own)


FOREIGN = {
    **{"empty": b"", "open": b"{", "list": b"[]", "null": b"null", "no text": b"\xff\xfe"},
    **{"deep": b"[" * 100_000, "bare": b'{"format": 1}', "large": b" " * (2**24 + 1)},
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_description_is_refused(own: Path, content: bytes) -> None:
    (own / "model.json").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.json: "):
        Model.load(own)


def replaced(own: Path, content: bytes) -> None:
    """Puts other weights into a model, with a description that vouches for them."""
    (own / "model.safetensors").write_bytes(content)
    plain = json.loads((own / "model.json").read_text())
    plain["weights_sha256"] = hashlib.sha256(content).hexdigest()
    (own / "model.json").write_text(json.dumps(plain))


def test_weights_that_are_damaged_or_another_networks_are_refused(own: Path) -> None:
    content = (own / "model.safetensors").read_bytes()
    (own / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(InputError, match="damaged, or another model's; export it again"):
        Model.load(own)
    (own / "model.safetensors").write_bytes(content[:1000])
    with pytest.raises(InputError, match="truncated"):
        Model.load(own)
    state: dict[str, Any] = {"state": {"weight": torch.zeros(200_000)}}
    pickled = io.BytesIO()
    torch.save(state, pickled)
    for forged in (content[:-1], b"\xff" * len(content), pickled.getvalue()):
        replaced(own, forged)
        with pytest.raises(InputError, match="no weights in safetensors"):
            Model.load(own)
    weights = load_tensors(content)
    bias = weights["classify.bias"]
    for changed, message in (
        ({name: tensor for name, tensor in weights.items() if name != "classify.bias"}, "bias is missing"),
        (weights | {"more": bias.clone()}, r"more is float32 \[3, 10\]; its config wants missing"),
        (weights | {"classify.bias": bias.T.contiguous()}, r"bias is float32 \[10, 3\]"),
        (weights | {"classify.bias": bias.double()}, "bias is float64"),
    ):
        replaced(own, save_tensors(changed))
        with pytest.raises(InputError, match=message):
            Model.load(own)
    replaced(own, content + b"\0" * 2**24)
    with pytest.raises(InputError, match="more than the"):
        Model.load(own)


def test_weights_without_numbers_give_an_error_instead_of_an_answer(own: Path, pixels: Tensor) -> None:
    weights = load_tensors((own / "model.safetensors").read_bytes())
    weights["norm.running_var"].fill_(-1)
    replaced(own, save_tensors(weights))
    with pytest.raises(InputError, match="lead to no numbers"):
        Model.load(own).predict(pixels)


def test_what_is_no_model_folder_is_refused_and_a_pipe_is_not_waited_for(own: Path, tmp_path: Path) -> None:
    assert isinstance(Model.load(own / "model.safetensors").about, About)
    for path, message in (
        (own / "model.onnx", "is no exported model"),
        (tmp_path / "none", "there is nothing of that name"),
        (tmp_path, r"model\.json: cannot be read \(No such file"),
    ):
        with pytest.raises(InputError, match=message):
            Model.load(path)
    (own / "model.json").unlink()
    os.mkfifo(own / "model.json")
    with pytest.raises(InputError, match="not a plain file"):
        Model.load(own)
