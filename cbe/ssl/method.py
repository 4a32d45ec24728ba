"""What makes a semi-supervised method: its views, its threshold policy and its unsupervised loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from cbe.ssl.losses import hard_cross_entropy
from cbe.ssl.thresholds import Always, MakePolicy
from cbe.ssl.world import World

OneHeadLoss = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits, target, weight → scalar
ExtraLoss = Callable[[Any, Tensor, Tensor, World], Tensor]  # policy, logits, weight, workers → scalar


@dataclass(frozen=True)
class Method:
    """One method with its defaults; `cbe/ssl/methods` has one file for each.

    `student` is view 1, which learns; None means that labels are all there is. `teacher` is view 2, which
    never gets a gradient: another weak view through the network, the student's `same` view, or a weak view
    through the `ema` network. `loss` is for one head; with several heads eq. 3 takes its place.
    """

    student: Literal["strong", "weak"] | None = "strong"
    teacher: Literal["weak", "same", "ema"] = "weak"
    policy: MakePolicy = Always
    loss: OneHeadLoss = hard_cross_entropy
    threshold: float | None = None  # τ, where there is one to set
    ensemble_threshold: float | None = None  # τ with several heads, where the paper gives another
    weight: float = 1.0  # of `loss`
    temperature: float = 1.0  # of the target
    ramp: float = 0.0  # share of all steps over which the weight grows from 0
    extra: ExtraLoss | None = None  # a loss beside the unsupervised one, from the policy's state
    fairness: float = 0.0  # its weight
