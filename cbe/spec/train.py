"""The training file: one model, one seed, one label split.

Defaults are the paper's, except where it is silent; a value of `null` means "as the method or the ensemble
says", and `cbe.ssl.resolve` fills it in. The paper's symbols stand beside the plain names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cbe.spec.backbones import Backbone, backbone_of
from cbe.spec.conditions import unused
from cbe.spec.ensembles import ENSEMBLES, WITH_HEADS, Ensemble
from cbe.spec.faults import Faults
from cbe.spec.methods import MethodSettings
from cbe.spec.registry import SOURCES
from cbe.spec.section import Count, Section, Seed, Share, Weight, named, one_of

Channels = tuple[float, ...]

PAPER_SHARE = 0.1  # C_G = round(0.1·C_F)


def is_given(info: ValidationInfo) -> bool:
    """Whether a user gives these values; those in the store were accepted when they were given."""
    return bool((info.context or {}).get("given"))


class Data(Section):
    """Images and which of their labels may be seen."""

    source: str = "digits"  # where images come from
    # where parquet or folder reads: a file or folder; for parquet also in a bucket
    path: str | None = None
    root: str = "data"  # folder of downloads and caches
    labels: Count | Literal["all"] = 40  # labeled images that training may see, the same number a class
    # the labeled images, listed instead of drawn
    label_indices: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    # share or number of training images held out
    validation: Annotated[float, Field(gt=0, lt=1)] | Count = 0.1
    label_split: Seed = 0  # draws the labeled and the validation images
    size: Annotated[int, Field(ge=8, le=128)] | None = None  # resize to size × size
    channels: Literal[1, 3] | None = None  # 1: grey, 3: RGB; null: as the images are
    flip: bool | None = None  # horizontal flip in the weak view; null: as the source says (not for digits)
    labeled_in_unlabeled: bool = True  # use the labeled images as unlabeled ones, too

    @field_validator("source")
    @classmethod
    def _known(cls, name: str) -> str:
        return one_of(SOURCES, "data source", name)

    @model_validator(mode="after")
    def _path_goes_with_source(self) -> Self:
        if (self.source in ("parquet", "folder")) != (self.path is not None):
            wants = "needs" if self.path is None else "takes no"
            raise ValueError(f"source {self.source} {wants} path")
        if self.source == "folder" and "://" in (self.path or ""):
            raise ValueError(
                "source folder reads a folder on this machine; for a bucket, write the images to Parquet and "
                "give source parquet"
            )
        return self


class Network(Section):
    """The network under the heads."""

    name: str = "wrn-28-2"  # which backbone
    # weight of the newest batch in BatchNorm's statistics; short runs need more
    bn_momentum: Annotated[float, Field(gt=0, le=1)] = 0.001
    # of BatchNorm; USB and the first FixMatch have 1e-3
    bn_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-5
    leak: Annotated[float, Field(ge=0, lt=1)] = 0.1  # slope of LeakyReLU below 0

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        backbone_of(name)
        return name

    @property
    def backbone(self) -> Backbone:
        return backbone_of(self.name)

    @property
    def features(self) -> int:
        """C_F, the features that the heads read."""
        return self.backbone.features

    def normalisation(self, mean: Channels, std: Channels) -> tuple[Channels, Channels]:
        """Mean and deviation by channel: the backbone's own, or else these of the training images."""
        return self.backbone.normalisation or (mean, std)


class Weights(Section):
    """λ of the total loss; null means as the method or the ensemble says."""

    labeled: Weight = 1.0  # λ_l, of the labeled loss
    unlabeled: Weight | None = None  # λ_e with several heads, the method's own weight with one
    lb: Weight | None = None  # λ_fu, low bias: 1 with private channels, else 0
    lv: Weight | None = None  # λ_lv, low variance: 1 with private channels, else 0


class Loss(Section):
    """The losses, where the paper leaves a choice."""

    labeled_views: Literal[1, 2] = 2  # weak views of each labeled image
    target: Literal["soft", "hard"] = "soft"  # pseudo-label of several heads; one head follows its method
    agreement: Share = 0.8  # γ: share of heads that must be confident for a hard target
    # which form of the correlation low bias makes small
    lb_correlation: Literal["abs", "square", "signed"] = "abs"
    lb_pairs: Literal["all", "ring"] = "all"  # compare every two heads, or each with the next
    weights: Weights = Weights()


class Training(Section):
    """The schedule, the optimizer and the device."""

    steps: Count = 200 * 1024  # T: steps of the optimizer
    batch_size: Count = 32  # B: labeled images a step
    unlabeled_ratio: Count = 7  # μ: unlabeled images for each labeled one
    # learning rate at the start; a cosine lowers it
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # Nesterov momentum of SGD
    weight_decay: Weight = 5e-4  # on weights, not on biases and norms
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.999  # decay of the mean of the weights, which is evaluated
    ema_warmup: bool = True  # begin with a short mean, and average BatchNorm's statistics alike
    forward: Literal["joint", "split"] = "split"  # all views in one pass, or the weak ones without gradient
    randaugment: Literal["fixmatch", "usb"] = "fixmatch"  # recipe of the strong views
    seed: Seed = 1388  # draws the weights, the batches and the augmentation
    eval_every: Count | None = None  # steps between evaluations; null: 1/50 of all, at least 10
    log_every: Count = 10  # steps between reads of the metrics that accumulate on the device
    eval_batch: Count = 512  # images evaluated at once
    device: str | None = None  # cpu, cuda or cuda:N; null: a GPU when there is one
    # of the network; null: what is fastest on the device
    precision: Literal["float32", "bfloat16"] | None = None
    compile: bool | None = None  # use torch.compile; null: on a GPU

    @property
    def evaluation_interval(self) -> int:
        return min(self.eval_every or max(10, self.steps // 50), self.steps)


class TrainConfig(Section):
    data: Annotated[Data, named("source")] = Data()
    model: Annotated[Network, named("name")] = Network()
    ensemble: Annotated[Ensemble, named("kind")] = Ensemble()
    method: Annotated[MethodSettings, named("name")] = MethodSettings()
    loss: Loss = Loss()
    training: Training = Training()

    @property
    def heads(self) -> int:
        """M: how many predictions the network makes of one image."""
        return (self.ensemble.heads or 5) if self.ensemble.kind in WITH_HEADS else 1

    @property
    def private_channels(self) -> int:
        """C_G: private channels of each head; 0 where heads have none."""
        if self.heads == 1 or "ensemble.private_channels" not in ENSEMBLES[self.ensemble.kind].takes:
            return 0
        return self.ensemble.private_channels or round(PAPER_SHARE * self.model.features)

    @model_validator(mode="after")
    def _channels_fit(self) -> Self:
        if self.private_channels >= self.model.features:
            raise ValueError(
                f"ensemble.private_channels: {self.private_channels} does not leave a shared channel of the "
                f"{self.model.features} that {self.model.name} has; give 1 to {self.model.features - 1}"
            )
        if self.loss.weights.lb and not self.private_channels:
            raise ValueError(
                f"loss.weights.lb: ensemble {self.ensemble.kind} has no private channels to decorrelate; "
                "leave it out, or use ensemble channel with at least 2 heads"
            )
        return self

    @model_validator(mode="after")
    def _images_fit(self) -> Self:
        size = self.data.size
        problem = self.model.backbone.image_problem(self.data.channels, size, size)
        if problem:
            raise ValueError(f"model.name: {self.model.name} does not fit data: {problem}")
        return self

    @model_validator(mode="after")
    def _uses_what_is_given(self, info: ValidationInfo) -> Self:
        if is_given(info):
            found = list(unused(self.to_plain(), TrainConfig().to_plain()))
            if found:
                raise Faults(found)
        return self

    def to_plain(self) -> dict[str, Any]:
        """The config as YAML and JSON can hold it."""
        return self.model_dump(mode="json")
