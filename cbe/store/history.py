"""A study's trials in Optuna's terms: for the sampler, for an export, for importances."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from cbe.spec import StudyConfig
from cbe.spec.search import applicable
from cbe.spec.terms import Pair, Preset
from cbe.store.rows import pair_of
from cbe.store.states import FINAL

Point = Mapping[str, Any]

# Errors that the config itself leads to, and the constraint it breaks: by that TPE ranks it behind all
# others, however good the values were that the trial had reported before.
AVOIDED = {"NonFiniteLoss": ("finite loss", 1.0), "OutOfMemory": ("fits in memory", 1.0)}


def told(state: str, error_class: str | None) -> TrialState:
    """What the sampler is told of a trial's end; RUNNING where it has not ended."""
    if state == "failed" and error_class in AVOIDED:
        return TrialState.PRUNED
    ended = {"completed": TrialState.COMPLETE, "failed": TrialState.FAIL}
    # Without a value, as one that is infeasible, the sampler takes a pruned trial for the worst.
    return ended.get(state, TrialState.PRUNED) if state in FINAL else TrialState.RUNNING


def is_in_space(study: StudyConfig, point: Point) -> bool:
    """Whether sampling could have given this point."""
    values = study.values(point)
    keys = {key for key, parameter in study.search.items() if applicable(key, parameter, values)}
    return point.keys() == keys and all(study.search[key].contains(value) for key, value in point.items())


def remembered(
    study: StudyConfig,
    row: Mapping[str, Any],
    curve: Mapping[int, float] | None = None,
    for_sampler: bool = False,
) -> FrozenTrial | None:
    """A row of `trials` as a trial of Optuna's; None where it is not of the search or not of this space.

    `curve` is the objective by step; without it the last value alone is known. A sampler is told what to
    avoid, other readers that the trial failed.
    """
    point = json.loads(row["params"] or "{}")
    if row["role"] != "search" or not is_in_space(study, point):
        return None
    error_class = row.get("error_class") if for_sampler and row["state"] == "failed" else None
    state, values = told(row["state"], error_class), row["values"]
    if state == TrialState.COMPLETE and not (values and all(map(math.isfinite, values))):
        state = TrialState.FAIL  # Optuna takes no NaN
    if curve is None and row["step"] and row["objective"] is not None:
        curve = {row["step"]: row["objective"]}
    several = len(study.objectives) > 1  # of those Optuna keeps no curve
    return optuna.create_trial(
        state=state,
        params=point,
        distributions={key: study.search[key].distribution() for key in point},
        values=values if state == TrialState.COMPLETE else None,
        intermediate_values=dict(curve or {}) if not several else None,
        user_attrs=about(row["trial"], pair_of(row), row["preset"]),
        constraints=dict([AVOIDED[error_class]]) if error_class in AVOIDED else None,
    )


def about(name: str, pair: Pair, preset: Preset | None) -> dict[str, Any]:
    """What Optuna is told of a trial beside its point."""
    return {"seed": pair[0], "label_split": pair[1], "preset": preset, "trial": name}
