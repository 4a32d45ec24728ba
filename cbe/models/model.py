"""An exported model in use."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from cbe.errors import DataError, InputError
from cbe.models.about import ABOUT_FILE, AGAIN, WEIGHTS_FILE, About, read_about, read_bounded
from cbe.models.calibration import calibrated
from cbe.models.network import Classifier, Weights, answers, assemble, fewest_bytes, most_bytes, outline
from cbe.spec import Training
from cbe.training.device import Mode, choose


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a model says of N images."""

    labels: Tensor  # [N], which of the classes
    probs: Tensor  # [N, K], mean over heads
    heads: Tensor  # [N, M, K]
    calibrated: Tensor  # [N, K], `probs` at the model's temperature
    disagreement: Tensor | None  # [N], share of the pairs of heads that differ; None for one head

    @property
    def probability(self) -> Tensor:
        """[N], of the label."""
        return self.probs.gather(1, self.labels[:, None])[:, 0]

    @property
    def confidence(self) -> Tensor:
        """[N], the calibrated probability of the label."""
        return self.calibrated.gather(1, self.labels[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class Model:
    about: About
    classifier: Classifier
    mode: Mode

    @classmethod
    def load(cls, path: Path | str, device: str | None = None) -> Model:
        """Reads an exported folder, or its weights; on a GPU where there is one, unless told otherwise.

        Nothing in the folder is run or unpickled, and nothing is taken that does not fit together.
        """
        folder = _folder(Path(path).expanduser())
        about, file = read_about(folder), folder / WEIGHTS_FILE
        # A config may ask for a network of any size: the file shows first that there is one.
        if file.is_file() and file.stat().st_size < fewest_bytes(about):
            raise InputError(f"{file}: is too small for {about.config.model.name}: truncated; {AGAIN}")
        content = read_bounded(file, most_bytes(outline(about)))
        if hashlib.sha256(content).hexdigest() != about.weights_sha256:
            raise InputError(
                f"{file}: is not what {ABOUT_FILE} beside it speaks of: damaged, or another model's; {AGAIN}"
            )
        try:
            weights = load_tensors(content)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file}: no weights in safetensors ({error}); {AGAIN}") from None
        return cls.of(about, weights, str(file), device)

    @classmethod
    def of(cls, about: About, weights: Weights, where: str, device: str | None = None) -> Model:
        """A model of weights that are in memory; `where` is what a message calls them."""
        mode = choose(Training(device=device, compile=False))
        if mode.precision == torch.bfloat16 and about.config.training.precision == "float32":
            mode = Mode(mode.device, torch.float32, compile=False)
        return cls(about, assemble(about, weights, where, mode.layout).to(mode.device), mode)

    @torch.no_grad()
    def predict(self, pixels: Tensor | npt.NDArray[np.uint8], batch: int | None = None) -> Predicted:
        """Predicts uint8 images [N, C, H, W], `batch` at once: the trial's own when left out.

        To the bit what the trial's evaluation said, on the same device.
        """
        given = torch.tensor(pixels) if isinstance(pixels, np.ndarray) else pixels
        self._check(given)
        parts = given.split(batch or self.about.config.training.eval_batch)
        with self.mode.autocast():
            logits = torch.cat([self.classifier.logits(part.to(self.mode.device)) for part in parts])
        probs, heads = (each.cpu() for each in answers(logits))
        if not probs.isfinite().all():
            raise InputError(f"{self.about.trial}: the model's weights lead to no numbers; {AGAIN}")
        return Predicted(
            labels=probs.argmax(dim=1),
            probs=probs,
            heads=heads,
            calibrated=calibrated(probs, self.about.calibration.temperature),
            disagreement=_disagreement(heads),
        )

    def _check(self, pixels: Tensor) -> None:
        image = self.about.image
        wanted = (image.channels, image.height, image.width)
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or tuple(pixels.shape[1:]) != wanted:
            raise DataError(
                f"images are {str(pixels.dtype).removeprefix('torch.')} {list(pixels.shape)}; wanted uint8 "
                f"[N, {', '.join(map(str, wanted))}]; decode and resize them so"
            )


def _disagreement(heads: Tensor) -> Tensor | None:
    """As `head_disagreement` of a trial's metrics, for each image."""
    count = heads.shape[1]
    if count == 1:
        return None
    labels = heads.argmax(dim=2)
    differ = (labels.unsqueeze(1) != labels.unsqueeze(2)).float()
    return differ.sum(dim=(1, 2)) / (count * (count - 1))


def _folder(path: Path) -> Path:
    if path.is_dir():
        return path
    if path.name == WEIGHTS_FILE:
        return path.parent
    problem = "is no exported model" if path.exists() else "there is nothing of that name"
    raise InputError(
        f"{path}: {problem}; wanted a folder that `cbe export-model` made, or its {WEIGHTS_FILE}; "
        "check the path"
    )
