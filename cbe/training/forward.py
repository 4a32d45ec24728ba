"""The views of a batch and the network's predictions of them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from cbe.nn import Prediction
from cbe.training.run import Run


class Predictions(NamedTuple):
    labeled: Prediction  # all weak views of the labeled images
    student: Prediction | None  # view 1 of the unlabeled ones; None for a method without any
    teacher: Prediction | None  # view 2, still to be detached


def forward(run: Run, labeled: Tensor, unlabeled: Tensor) -> Predictions:
    """Augments and predicts; `labeled` and `unlabeled` are uint8 images.

    `joint` puts all views through one forward; `split` runs view 2 by itself, without gradient, and so does a
    method whose teacher is another network.
    """
    method = run.method
    labeled = labeled.repeat(run.config.loss.labeled_views, 1, 1, 1)
    with run.mode.autocast():
        if method.student is None:
            return Predictions(run.forward(run.inputs(run.weak(labeled))), None, None)
        view1 = run.strong(unlabeled) if method.student == "strong" else run.weak(unlabeled)
        if method.teacher == "same":
            first, student = _through(run, run.weak(labeled), view1)
            return Predictions(first, student, student)
        # One call for the labeled views and view 2.
        weak, view2 = run.weak(torch.cat([labeled, unlabeled])).tensor_split([len(labeled)])
        if method.teacher == "weak" and run.config.training.forward == "joint":
            first, student, teacher = _through(run, weak, view1, view2)
            return Predictions(first, student, teacher)
        with torch.no_grad():
            teacher = (run.teacher if method.teacher == "ema" else run.forward)(run.inputs(view2))
        first, student = _through(run, weak, view1)
        return Predictions(first, student, teacher)


def _through(run: Run, *views: Tensor) -> list[Prediction]:
    """Several views in one forward."""
    every = run.forward(run.inputs(*views))
    ends = itertools.accumulate(len(view) for view in views)
    return [every.rows(end - len(view), end) for view, end in zip(views, ends, strict=True)]
