"""The methods: which there are, which settings each takes, and what these settings are.

A setting that no other method has is a field of `MethodSettings`, listed in the line of its method. With a
default of its own, nothing else needs to know of it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from cbe.spec.registry import Entry
from cbe.spec.section import Section, Share, Weight, one_of

_UNLABELED = ("method.temperature", "method.ramp", "loss.weights.unlabeled")
_THRESHOLD = (*_UNLABELED, "method.threshold")
_ADAPTIVE = (*_UNLABELED, "method.momentum")

METHODS = {
    "supervised": Entry("cbe.ssl.methods.supervised:METHOD"),
    "pseudo-label": Entry("cbe.ssl.methods.pseudo_label:METHOD", _THRESHOLD),
    "pi-model": Entry("cbe.ssl.methods.pi_model:METHOD", _UNLABELED),
    "mean-teacher": Entry("cbe.ssl.methods.mean_teacher:METHOD", _UNLABELED),
    "uda": Entry("cbe.ssl.methods.uda:METHOD", _THRESHOLD),
    "fixmatch": Entry("cbe.ssl.methods.fixmatch:METHOD", _THRESHOLD),
    "flexmatch": Entry("cbe.ssl.methods.flexmatch:METHOD", _THRESHOLD),
    "freematch": Entry("cbe.ssl.methods.freematch:METHOD", (*_ADAPTIVE, "method.fairness")),
    "softmatch": Entry("cbe.ssl.methods.softmatch:METHOD", _ADAPTIVE),
}


class MethodSettings(Section):
    """The SSL method; null means the method's own default."""

    name: str = "fixmatch"  # which method
    threshold: Share | None = None  # τ: confidence from which a prediction is a pseudo-label
    # sharpens the target; 1: not at all
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    ramp: Share | None = None  # share of the steps over which the unsupervised weight grows
    fairness: Weight | None = None  # weight of FreeMatch's fairness term
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.999  # of the means behind adaptive thresholds

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return one_of(METHODS, "method", name)
