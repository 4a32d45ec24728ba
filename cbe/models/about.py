"""What `model.json` says of the weights beside it, checked before anything is made of it."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from cbe.errors import InputError
from cbe.spec import TrainConfig
from cbe.spec.section import Section

VERSION = 1
ABOUT_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
AGAIN = "export it again with `cbe export-model`"

_MOST_BYTES = 2**24
Side = Annotated[int, Field(ge=8, le=128)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Loss = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Image(Section):
    """The images a network takes."""

    channels: Literal[1, 3]
    height: Side
    width: Side


class Calibration(Section):
    """The temperature that makes confidences honest, and what it does on the images it was fitted on."""

    temperature: Positive = 1.0
    n: Annotated[int, Field(ge=0)] = 0  # validation images
    nll_before: Loss = 0.0  # mean negative log-likelihood
    nll_after: Loss = 0.0
    ece_before: Share = 0.0  # expected calibration error
    ece_after: Share = 0.0


class About(Section):
    format: Literal[1] = 1  # VERSION
    study: str
    trial: str
    config_id: str
    config: TrainConfig  # resolved
    step: Annotated[int, Field(ge=0)]
    validation_error: Share  # as it was recorded at this step
    classes: Annotated[tuple[str, ...], Field(min_length=1, max_length=2**16)]
    image: Image
    mean: tuple[Finite, ...]  # per channel, of pixels in 0..1
    std: tuple[Positive, ...]
    calibration: Calibration = Calibration()
    git_commit: str | None  # of the code that trained it
    versions: dict[str, str]
    weights_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not len(self.mean) == len(self.std) == self.image.channels:
            raise ValueError(f"mean and std: wanted {self.image.channels} values each, one a channel")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: wanted every name once")
        return self

    def is_same_model(self, other: About) -> bool:
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("study", "trial", "step", "weights_sha256")
        )

    def to_plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def encode(self) -> bytes:
        return json.dumps(self.to_plain(), indent=1, allow_nan=False).encode()


def read_about(folder: Path) -> About:
    """The `model.json` of an exported folder; refuses whatever is not wholly one."""
    path = folder / ABOUT_FILE
    content = read_bounded(path, _MOST_BYTES)
    try:
        plain = json.loads(content)
        version = plain.get("format") if isinstance(plain, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise InputError(
                f"{path}: is of format {version}, written by a newer cbe-studies; this one reads {VERSION}; "
                "install the newer one"
            )
        return About.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise InputError(f"{path}: no model of ours ({where}: {first['msg']}); {AGAIN}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({str(error)[:100]}); {AGAIN}") from None


def read_bounded(path: Path, most: int) -> bytes:
    """A file's content; refuses one that is larger than it can be."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device read for ever
            raise OSError(errno.EINVAL, "not a plain file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); wanted a folder that `cbe export-model` made; "
            "check the path"
        ) from None
    if len(content) > most:
        raise InputError(f"{path}: has more than the {most:,} bytes it may have; {AGAIN}")
    return content
