"""A study's trials in Optuna's terms: for the sampler, for an export, for importances."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from cbe.spec import StudyConfig
from cbe.spec.search import applicable
from cbe.spec.terms import Pair, Preset
from cbe.store.rows import pair_of
from cbe.store.states import FINAL

Point = Mapping[str, Any]

PAUSED = "paused"  # the user attribute of a trial that waits at a rung, or has waited there

# Errors that the config itself leads to, and the constraint it breaks: by that TPE ranks it behind all
# others, however good the values were that the trial had reported before.
AVOIDED = {"NonFiniteLoss": ("finite loss", 1.0), "OutOfMemory": ("fits in memory", 1.0)}
WITH_CONSTRAINTS = ("prior", "tpe")  # the other samplers warn of constraints


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


def ending(
    study: StudyConfig, state: str, values: Sequence[float] | None, error_class: str | None
) -> tuple[TrialState, list[float] | None, tuple[str, float] | None]:
    """A trial's end as the sampler is told of it: its state, its values, and the constraint it breaks."""
    as_told = told(state, error_class)
    if as_told != TrialState.COMPLETE:
        avoids = study.sampler.name in WITH_CONSTRAINTS and state == "failed"
        return as_told, None, AVOIDED.get(error_class or "") if avoids else None
    if not (values and all(map(math.isfinite, values))):
        return TrialState.FAIL, None, None  # Optuna takes no NaN
    return as_told, list(values), None


def remembered(
    study: StudyConfig,
    row: Mapping[str, Any],
    curve: Mapping[int, float] | None = None,
    for_sampler: bool = False,
) -> FrozenTrial | None:
    """A row of `trials` as a trial of Optuna's; None where it is not of the search or not of this space.

    `curve` is the objective by step; without it the last value alone is known. A sampler is told what to
    avoid, and what it had noted itself; other readers are told that the trial failed.
    """
    point = json.loads(row["params"] or "{}")
    if row["role"] != "search" or not is_in_space(study, point):
        return None
    state, values, constraint = ending(
        study, row["state"], row["values"], row.get("error_class") if for_sampler else None
    )
    if curve is None and row["step"] and row["objective"] is not None:
        curve = {row["step"]: row["objective"]}
    if len(study.objectives) > 1:  # of those Optuna keeps no curve
        curve = None
    if state == TrialState.PRUNED and curve and not math.isnan(curve[max(curve)]):
        values = [curve[max(curve)]]  # as Optuna has it
    noted = json.loads(row.get("sampler") or "{}") if for_sampler else {}
    paused = {PAUSED: True} if noted.get(PAUSED) else {}
    return optuna.create_trial(
        state=state,
        params=point,
        distributions={key: study.search[key].distribution() for key in point},
        values=values,
        intermediate_values=dict(curve or {}),
        user_attrs=about(row["trial"], pair_of(row), row["preset"]) | paused,
        system_attrs=noted.get("trial"),
        constraints=dict([constraint]) if constraint else None,
    )


def about(name: str, pair: Pair, preset: Preset | None) -> dict[str, Any]:
    """What Optuna is told of a trial beside its point."""
    return {"seed": pair[0], "label_split": pair[1], "preset": preset, "trial": name}
