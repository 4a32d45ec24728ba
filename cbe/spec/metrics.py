"""The metrics: what each is called, how it is written, whether a study can pursue it, and where it is shown.

A new metric is the line that computes it (in `training/evaluate.py`, `training/meter.py`, or a function of
`ssl` or `nn` that these call) and one entry here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cbe.spec.terms import Direction


@dataclass(frozen=True)
class Unit:
    """How values are written: multiplied by the factor, with so many decimals, and a sign behind them."""

    sign: str = ""
    difference: str = ""  # the sign behind a difference of two
    factor: float = 1.0
    decimals: int | None = None  # null: four digits, wherever the point is
    least_decimals: int = 3  # of a mean in a sentence
    largest: float = math.inf  # no two values differ by more


NUMBER = Unit()
PERCENT = Unit("%", "points", factor=100, decimals=2, least_decimals=1, largest=1.0)
NATS = Unit(decimals=4)
COUNT = Unit(decimals=0)
SECONDS = Unit("s", "s", decimals=2)


@dataclass(frozen=True)
class Chart:
    """A figure of a trial's curves on the service's page."""

    title: str
    axis: str
    factor: float = 1.0


CHARTS = {
    "errors": Chart("Error", "error, %", 100),
    "losses": Chart("Loss", "loss"),
    "pseudo": Chart("Pseudo-labels", "%", 100),
    "heads": Chart("Heads", ""),
}


@dataclass(frozen=True)
class Metric:
    name: str  # of its column, and of the objective
    title: str  # in tables and figures
    meaning: str  # in the reference of the store
    unit: Unit = NUMBER
    labels: Literal["validation", "test"] | None = None  # the images whose true labels it reads
    objective: Direction | None = None  # a study can pursue it, by default in this direction
    margin: str | None = None  # of equivalence, where the study gives none
    per_trial: bool = False  # a column of `trials`; all others are in each report, and in `metrics`
    summarized: bool = False  # `trials` has the last, the median and the best
    show: bool = False  # `cbe show STUDY/TRIAL` prints the last
    log: bool = False  # the trial's log has it in the line of each evaluation
    curve: tuple[str, str] | None = None  # its chart on the service's page, and the name of its line
    panel: Literal["pseudo-labels", "heads"] | None = None  # of the report, which draws it too

    @property
    def counted_on(self) -> Literal["validation", "test"] | None:
        """The images whose share it is."""
        return self.labels if self.unit is PERCENT else None

    @property
    def on_test(self) -> bool:
        return self.labels == "test"


# fmt: off
_METRICS = (
    Metric("loss", "loss", "total loss, mean since the last report", show=True, log=True,
           curve=("losses", "whole")),
    Metric("loss_labeled", "labeled loss", "L_l, before its weight", curve=("losses", "labeled")),
    Metric("loss_unlabeled", "unlabeled loss", "L_e, or the method's own loss, before its weight",
           curve=("losses", "unlabeled")),
    Metric("loss_lb", "low bias loss", "L_fu, low bias, before its weight", curve=("losses", "lb")),
    Metric("loss_lv", "low variance loss", "L_lv, low variance, before its weight", curve=("losses", "lv")),
    Metric("loss_fairness", "fairness loss", "FreeMatch's fairness term, before its weight"),
    Metric("validation_error", "validation error", "error on the validation images, 0 to 1", PERCENT,
           labels="validation", objective="minimize", margin="1 point", summarized=True, show=True, log=True,
           curve=("errors", "validation")),
    Metric("validation_loss", "validation loss", "cross-entropy on the validation images", NATS,
           labels="validation", objective="minimize", show=True, curve=("losses", "validation")),
    Metric("test_error", "test error", "error on the test images, 0 to 1; never used for selection", PERCENT,
           labels="test", objective="minimize", margin="1 point", summarized=True, show=True,
           curve=("errors", "test*")),
    Metric("pseudo_accuracy", "accuracy of pseudo-labels",
           "share of the pseudo-labels in use that are right; null where true labels are unknown", PERCENT,
           show=True, log=True, curve=("pseudo", "accuracy"), panel="pseudo-labels"),
    Metric("sampling_rate", "sampling rate", "η: share of predictions that pass the threshold", PERCENT,
           show=True, log=True, curve=("pseudo", "sampling rate"), panel="pseudo-labels"),
    Metric("sampling_rate_ensemble", "sampling rate of the ensemble",
           "η_CBE: share of images on which at least γ of the heads pass", PERCENT,
           curve=("pseudo", "sampling rate of the ensemble")),
    Metric("head_correlation", "correlation of heads",
           "mean absolute correlation between the private features of heads", curve=("heads", "correlation"),
           panel="heads"),
    Metric("head_disagreement", "disagreement of heads",
           "share of the pairs of heads that give different classes", PERCENT, show=True,
           curve=("heads", "disagreement"), panel="heads"),
    Metric("variance_ensemble", "variance of the ensemble",
           "variance of the ensemble's prediction over several views",
           curve=("heads", "variance of the ensemble")),
    Metric("variance_heads", "mean variance of the heads", "the same of single heads, on average",
           curve=("heads", "mean variance of the heads")),
    Metric("lr", "learning rate", "learning rate"),
    Metric("steps_per_s", "steps per s", "speed since the last report", show=True, log=True),
    Metric("parameters", "parameters", "number of the network's parameters", COUNT, objective="minimize",
           per_trial=True),
    Metric("macs", "MACs", "multiply-accumulates for one image", COUNT, objective="minimize", per_trial=True),
    Metric("wall_s", "wall time", "seconds of training and evaluation so far", SECONDS, objective="minimize",
           per_trial=True),
)
# fmt: on

METRICS = {each.name: each for each in _METRICS}
REPORTED = tuple(name for name, each in METRICS.items() if not each.per_trial)
SUMMARIZED = tuple(name for name, each in METRICS.items() if each.summarized)
SUMMARIES = ("last", "median", "best")  # evaluation; best: the one with the lowest validation error
OBJECTIVES = tuple(  # those that need a permission at the end
    name for on in (False, True) for name, each in METRICS.items() if each.objective and each.on_test is on
)
WHILE_TRAINING = tuple(name for name in REPORTED if name in OBJECTIVES)  # what a scheduler can compare


def metric_of(column: str | None) -> Metric | None:
    """The metric in a column of `metrics` or `trials`; None where it holds something else.

    >>> metric_of("last_test_error").title
    'test error'
    """
    which, _, name = (column or "").partition("_")
    return METRICS.get(name if which in SUMMARIES else column or "")


def unit_of(column: str | None) -> Unit:
    """The unit of a column."""
    found = metric_of(column)
    return found.unit if found else NUMBER


def on_test(column: str) -> bool:
    """Whether a column was computed from test labels."""
    found = metric_of(column)
    return found is not None and found.on_test
