"""The figures that the paper prints, and the setting they were measured in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cbe.spec import Data, StudyConfig

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
NAMES = {
    "supervised": "Supervised",
    "pseudo-label": "Pseudo-Label",
    "pi-model": "Π-model",
    "mean-teacher": "Mean Teacher",
    "uda": "UDA",
    "fixmatch": "FixMatch",
    "flexmatch": "FlexMatch",
    "freematch": "FreeMatch",
    "softmatch": "SoftMatch",
}

Approach = tuple[str, str]  # method, ensemble

_SETS = [("cifar10", n) for n in (40, 250, 4000)] + [("cifar100", n) for n in (400, 2500, 10000)]
_ERRORS: Mapping[Approach, tuple[float, ...]] = {  # table 1, %
    ("fixmatch", "single"): (8.15, 5.96, 5.05, 51.74, 30.09, 22.69),
    ("fixmatch", "channel"): (7.21, 6.88, 4.63, 51.17, 29.50, 22.60),
    ("freematch", "single"): (14.85, 5.85, 4.95, 44.41, 28.04, 22.37),
    ("freematch", "channel"): (6.13, 5.25, 4.55, 43.64, 26.85, 22.33),
}
COMPARISONS: Mapping[tuple[str, int | str], Mapping[Approach, float]] = {
    place: {method: errors[number] for method, errors in _ERRORS.items()}
    for number, place in enumerate(_SETS)
}
# Table 2, %, CIFAR-10 with 40 labels: by method, ensemble, and whether the LB and the LV loss are on.
ABLATION: Mapping[tuple[str, str, bool, bool], float] = {
    ("freematch", "single", False, False): 14.85,
    ("freematch", "channel", False, False): 10.26,
    ("freematch", "channel", True, False): 8.83,
    ("freematch", "channel", True, True): 6.13,
}
# Table 3, CIFAR-10 with 40 labels: minutes and error in %, by method, ensemble and share of the training.
TIMES: Mapping[tuple[str, str, float], tuple[int, float]] = {
    ("fixmatch", "single", 1.0): (4096, 7.47),
    ("fixmatch", "channel", 0.5): (2048, 7.45),
    ("fixmatch", "channel", 1.0): (4096, 5.20),
}
# Table 4, its two headings put right: parameters and FLOPs, in millions.
COSTS: Mapping[str, tuple[float, float]] = {"single": (1.468, 216.254), "channel": (1.473, 216.390)}
COST_NOTE = (
    "The paper's table has its two headings swapped; here they are right. It gives 1.468 M parameters and "
    "216.254 M FLOPs without CBE, 1.473 M and 216.390 M with it, for WRN-28-2. Those FLOPs count batch "
    "normalisation (214.352 M multiply-accumulates without), and what it adds for CBE leaves out the 1 × 1 "
    "convolution: 5 heads with 12 private channels add 27,864 parameters, 96 more in batch "
    "normalisation, and 1.447 M multiply-accumulates (+0.68 %)."
)


@dataclass(frozen=True)
class Setting:
    """What has to be the same for two errors to be comparable."""

    network: str
    steps: int
    batch: int
    unlabeled: int
    size: int | None  # None: images as the source has them

    def words(self) -> str:
        side = f", images {self.size} × {self.size}" if self.size else ""
        batch = f"batch {self.batch} + {self.unlabeled}"
        return f"{self.network.upper()}, {self.steps:,} steps, {batch}{side}"

    def unlike(self, other: Setting) -> list[str]:
        """In what this differs from another one."""
        mine, others = self.size or _SIDE, other.size or _SIDE
        found = {
            "network": self.network != other.network,
            "steps": self.steps != other.steps,
            "batch": (self.batch, self.unlabeled) != (other.batch, other.unlabeled),
            "image size": mine != others,
        }
        return [name for name, differs in found.items() if differs]


_SIDE = 32  # of CIFAR's images
PAPER = {
    name: Setting(f"wrn-28-{width}", 204_800, 32, 224, None) for name, width in zip(DATA, (2, 6), strict=True)
}


def data_name(data: Data) -> str:
    """What images they are: the source, or the last part of the path."""
    return image_name(data.source, data.path)


def image_name(source: str, path: str | None) -> str:
    """
    >>> image_name("digits", None), image_name("parquet", "s3://bucket/pets/?region=eu")
    ('digits', 'pets')
    """
    return PurePosixPath((path or "").partition("?")[0].rstrip("/")).name or source


def data_set(data: Data) -> str | None:
    """cifar10 or cifar100, where the images are the paper's."""
    name = data_name(data) if data.source in ("parquet", *DATA) else ""
    return name if name in DATA else None


def setting(study: StudyConfig) -> Setting:
    """A study's own."""
    training = study.training
    return Setting(
        study.model.name,
        training.steps,
        training.batch_size,
        training.batch_size * training.unlabeled_ratio,
        study.data.size,
    )


def comparisons(study: StudyConfig) -> Mapping[Approach, float]:
    """The paper's errors on the study's images with as many labels; none where it has none."""
    return COMPARISONS.get((data_set(study.data) or "", labels(study.data)), {})


def has_ablation(study: StudyConfig) -> bool:
    """Whether tables 2 and 3 speak of the study's images with as many labels."""
    return (data_set(study.data), labels(study.data)) == ("cifar10", 40)


def has_cost(study: StudyConfig) -> bool:
    """Whether table 4 speaks of the study's network on images of the same shape."""
    unlike = setting(study).unlike(PAPER["cifar10"])
    return data_set(study.data) == "cifar10" and not {"network", "image size"} & {*unlike}


def is_papers(row: Mapping[str, Any]) -> bool:
    """Whether a trial's ensemble is the paper's: none, or 5 heads with both losses."""
    if row["ensemble_kind"] != "channel":
        return bool(row["ensemble_kind"] == "single")
    weights = (row["loss_weights_lb"], row["loss_weights_lv"])
    return row["ensemble_heads"] == 5 and weights == (1.0, 1.0)


def labels(data: Data) -> int | str:
    """How many labels may be seen, or `all`."""
    return data.labels if data.label_indices is None else len(data.label_indices)
