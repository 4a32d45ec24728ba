"""The ensembles: which there are, which settings each takes, and what these settings are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from cbe.spec.registry import Entry
from cbe.spec.section import Count, Section, one_of

HEADS = "ensemble.heads"  # what else an ensemble with heads takes, it takes with 2 or more
_WITH_HEADS = (HEADS, "loss.target", "loss.agreement")
_LOW_BIAS = ("ensemble.private_channels", "loss.lb_correlation", "loss.lb_pairs", "loss.weights.lb")

ENSEMBLES = {
    "single": Entry("cbe.nn.ensembles:single"),
    "model": Entry("cbe.nn.ensembles:model", _WITH_HEADS),
    # one network; its past predictions are the ensemble
    "temporal": Entry("cbe.nn.ensembles:single", ("ensemble.momentum",)),
    "multihead": Entry("cbe.nn.ensembles:multihead", _WITH_HEADS),
    "channel": Entry("cbe.nn.ensembles:channel", (*_WITH_HEADS, *_LOW_BIAS)),
}

WITH_HEADS = tuple(name for name, entry in ENSEMBLES.items() if HEADS in entry.takes)


class Ensemble(Section):
    """What makes several predictions of one image."""

    kind: str = "channel"  # which ensemble; channel is CBE, single is none
    # M: number of heads; null: 5 where the ensemble has heads
    heads: Annotated[int, Field(ge=1, le=64)] | None = None
    private_channels: Count | None = None  # C_G: of each head, for channel only; null: round(0.1·C_F)
    momentum: Annotated[float, Field(ge=0, le=0.9999)] = 0.6  # for temporal only: of the mean prediction

    @field_validator("kind")
    @classmethod
    def _known(cls, name: str) -> str:
        return one_of(ENSEMBLES, "ensemble", name)
