"""What a trial is told to do: one config on one seed and one label split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.terms import Pair, Preset, Role


@dataclass(frozen=True)
class Assignment:
    """Survives the driver: it is stored with the trial and makes the same run again."""

    trial: str  # t0007 of the search, c0003 of the confirmation
    role: Role
    pair: Pair
    point: Mapping[str, Any] = field(default_factory=dict)  # what was sampled, by dotted key
    preset: Preset | None = None
    number: int | None = None  # of the Optuna trial; None where the sampler has no part in it
    resume: str | None = None  # the checkpoint to go on from, relative to the study's folder

    def config(self, study: StudyConfig) -> TrainConfig:
        """The config to train; ConfigError where it cannot be built."""
        if self.preset == "paper":
            return study.paper_config(*self.pair)
        if self.preset == "base":
            return study.base_config(*self.pair)
        return study.train_config(self.point, *self.pair)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Assignment:
        return cls(**{**plain, "pair": tuple(plain["pair"])})
