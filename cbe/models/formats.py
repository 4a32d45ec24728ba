"""A model for other runtimes: uint8 pixels in, normalisation inside, any number of images at once.

`pixels` uint8 [N, C, H, W] → `probs` [N, K], the mean of the heads' probabilities, and `heads` [N, M, K].
"""

from __future__ import annotations

import copy
import difflib
import io
import json
import logging
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from cbe.errors import InputError, RunError
from cbe.models.about import About
from cbe.models.model import Model, Predicted
from cbe.models.network import Classifier

TOLERANCE = 1e-4  # of a probability, between a runtime and torch
_CHECKED = 16  # images

Answers = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Format:
    file: str
    needs: tuple[str, ...]  # packages of the optional extra
    write: Callable[[ExportedProgram, About], bytes]
    run: Callable[[bytes, Tensor], Answers]


def require(names: Collection[str]) -> None:
    """Refuses formats that there are not, or that cannot be written here."""
    for name in names:
        if name not in FORMATS:
            near = difflib.get_close_matches(name, FORMATS, 1)
            hint = f"did you mean {near[0]}?" if near else "leave it out for safetensors alone"
            raise InputError(f"--to {name}: no such format; there are {', '.join(FORMATS)}; {hint}")
        missing = [package for package in FORMATS[name].needs if find_spec(package) is None]
        if missing:
            raise InputError(
                f"--to {name}: {', '.join(missing)} not installed; wanted the optional extra; "
                f"pip install 'cbe-studies[{name}]'"
            )


def written(model: Model, names: Collection[str], pixels: Tensor, said: Predicted) -> dict[str, bytes]:
    """The files of some formats, each tried on a few images of which the model's own answers are known."""
    if not names:
        return {}
    program, few, files = _exported(model), min(_CHECKED, len(pixels)), {}
    for name in dict.fromkeys(names):
        kind = FORMATS[name]
        with _quiet():
            content = kind.write(program, model.about)
            found = kind.run(content, pixels[:few])
        for mine, theirs in zip((said.probs[:few], said.heads[:few]), found, strict=True):
            if not torch.allclose(mine, theirs, rtol=0, atol=TOLERANCE):
                gap = (mine - theirs).abs().max().item()
                raise RunError(
                    f"{kind.file}: its probabilities differ by up to {gap:.2g} from torch's; "
                    f"leave --to {name} out"
                )
        files[kind.file] = content
    return files


def _exported(model: Model) -> ExportedProgram:
    """The network as a graph."""
    image = model.about.image
    # In the plain layout: other runtimes choose their own.
    layout = torch.contiguous_format
    network = copy.deepcopy(model.classifier.network).cpu()
    plain = Classifier(network.to(memory_format=layout), model.about, layout).eval()  # type: ignore[call-overload]
    example = torch.zeros(2, image.channels, image.height, image.width, dtype=torch.uint8)
    with _quiet(), torch.no_grad():
        program = torch.export.export(plain, (example,), dynamic_shapes={"pixels": {0: Dim("batch")}})
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # names source files on this machine
    return program


def _to_torch(program: ExportedProgram, about: About) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _run_torch(content: bytes, pixels: Tensor) -> Answers:
    probs, heads = torch.export.load(io.BytesIO(content)).module()(pixels)
    return probs, heads


def _to_onnx(program: ExportedProgram, about: About) -> bytes:
    made = torch.onnx.export(
        program, (), input_names=["pixels"], output_names=["probs", "heads"], dynamo=True, verbose=False
    )
    if made is None:
        raise RunError("model.onnx: torch made none; leave --to onnx out")
    proto = made.model_proto
    for node in proto.graph.node:
        node.ClearField("metadata_props")
    known = {"classes": json.dumps(about.classes), "temperature": repr(about.calibration.temperature)}
    for key, value in known.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content


def _run_onnx(content: bytes, pixels: Tensor) -> Answers:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    probs, heads = session.run(["probs", "heads"], {"pixels": np.asarray(pixels)})
    return torch.tensor(probs), torch.tensor(heads)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn of their own internals, which a user can do nothing about."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


FORMATS = {
    "onnx": Format("model.onnx", ("onnx", "onnxscript", "onnxruntime"), _to_onnx, _run_onnx),
    "torch": Format("model.pt2", (), _to_torch, _run_torch),
}
