"""A sampler that starts from the author's beliefs and leaves them as fast as the trials contradict them.

Each trial comes from one of four sources: the prior, an even draw, the neighbourhood of the best trial so far
(each value is kept with probability one half and redrawn near it otherwise), or Optuna's multivariate TPE.
The first trials are drawn by the prior and evenly. After that TPE's share grows with the number of trials.
The rest is divided as in PriorBand (Mallik et al., NeurIPS 2023): prior and neighbourhood each count as much
as they explain the best trials so far.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from cbe.spec.search import Parameter
from cbe.store.history import distribution
from cbe.study import prior

SOURCE = "cbe:source"  # the system attribute that names the source of a trial
Source = Literal["prior", "even", "incumbent", "model"]
Shares = dict[Source, float]

NEAR, KEEP = 0.2, 0.5  # around the best trial: width as a share of the range, and how often a value stays
PRIOR_FIRST = 2 / 3  # of the first trials are drawn by the prior, the others evenly
MODEL_AT_MOST = 0.8
ATTEMPTS = 20  # to draw a neighbour that was not tried before
TOP = 0.2  # share of the trials that count as the best, and at least three of them


def tpe(seed: int, startup: int) -> TPESampler:
    """Optuna's TPE over all parameters together, conditional ones in groups of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(
            seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True
        )


class PriorSampler(BaseSampler):
    """Suggests by prior, best trial or model, whichever the evidence favours."""

    def __init__(self, search: Mapping[str, Parameter], seed: int, startup: int = 10) -> None:
        """`startup` trials end before a model of the space is fitted."""
        self._search = search
        self._space = {key: distribution(parameter) for key, parameter in search.items()}
        self._has_priors = any(parameter.prior for parameter in search.values())
        self._startup = startup
        self._rng = np.random.default_rng(seed)
        self._tpe = tpe(seed, startup)
        self._chosen: dict[int, Source] = {}  # by the number of a trial that is being suggested

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Chooses the source, since it decides what is drawn together."""
        shares = self.shares(study)
        source = list(shares)[self._rng.choice(len(shares), p=list(shares.values()))]
        self._chosen[trial.number] = source
        study._storage.set_trial_system_attr(trial._trial_id, SOURCE, source)
        space = self._space
        return self._tpe.infer_relative_search_space(study, trial) if source == "model" else dict(space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters; those that do not apply are never asked for."""
        source = self._chosen.pop(trial.number)
        if source == "model":
            found = self._tpe.sample_relative(study, trial, search_space)
            return {key: self._on_step(key, value) for key, value in found.items()}
        draw = prior.draw_evenly if source == "even" else prior.draw
        point = {key: draw(self._search[key], self._rng) for key in search_space}
        if source != "incumbent":
            return point
        return self._near([each.params for each in ranked(study)], point)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that the model has not met yet."""
        value = self._tpe.sample_independent(study, trial, param_name, param_distribution)
        return self._on_step(param_name, value)

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self._tpe.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._tpe.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._tpe.after_trial(study, trial, state, values)

    def shares(self, study: Study) -> Shares:
        """How likely each source is to give the next trial."""
        ended = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))
        if ended < self._startup:
            share = PRIOR_FIRST if self._has_priors else 0.0
            return {"prior": share, "even": 1 - share}
        several = len(study.directions) > 1
        if several or not (trials := ranked(study)):
            return {"model": 1.0}
        model = MODEL_AT_MOST * ended / (ended + self._startup)
        evidence = self._evidence([trial.params for trial in trials])
        weights = {source: math.exp(min(value, 50.0)) for source, value in evidence.items()}
        rest = (1 - model) / sum(weights.values())
        return {"model": model, **{source: rest * weight for source, weight in weights.items()}}

    def _evidence(self, points: Sequence[Mapping[str, Any]]) -> Shares:
        """How well each source explains the best points, which come first, in nats a point.

        Many points have been drawn by the prior, so that even a wrong one explains them. Hence it counts by
        how much better it explains the best than the others, or than an even draw does if that is less.
        """
        count = max(3, math.ceil(TOP * len(points)))
        best, others = points[:count], points[count:] or points
        found: Shares = {"incumbent": _mean([self._near_density(point, best[0]) for point in best[1:]])}
        if self._has_priors:
            of_best, of_others = (_mean([self._prior_density(p) for p in group]) for group in (best, others))
            found["prior"] = min(of_best, of_best - of_others)
        return found

    def _on_step(self, key: str, value: Any) -> Any:
        """Optuna's multiples of a step are off by rounding: 0.8999999999999999 where the space has 0.9."""
        parameter = self._search[key]
        if parameter.float_ is None or parameter.step is None:
            return value
        return prior.from_unit(parameter, prior.to_unit(parameter, value))

    def _near(self, tried: Sequence[Mapping[str, Any]], elsewhere: Mapping[str, Any]) -> dict[str, Any]:
        """A new neighbour of the best point; `elsewhere` has values of what does not exist there.

        Keys that do not apply are in it too, so that a point is an old one where it contains all of that one.
        """
        for _ in range(ATTEMPTS):
            near = {**elsewhere, **{key: self._mutated(key, value) for key, value in tried[0].items()}}
            if not any(point.items() <= near.items() for point in tried):
                break
        return near

    def _mutated(self, key: str, value: Any) -> Any:
        parameter = self._search[key]
        if self._rng.random() < KEEP:
            return value
        if parameter.choice is not None:
            return prior.draw_evenly(parameter, self._rng)
        return prior.draw_near(parameter, value, NEAR, self._rng)

    def _near_density(self, point: Mapping[str, Any], center: Mapping[str, Any]) -> float:
        common = point.keys() & center.keys()
        return sum(
            prior.log_density(self._search[key], point[key], center[key], NEAR, KEEP) for key in common
        )

    def _prior_density(self, point: Mapping[str, Any]) -> float:
        believed = {key: p for key in point if (p := self._search[key].prior)}
        return sum(
            prior.log_density(
                self._search[key], point[key], p.at, prior.WIDTH[p.confidence], prior.SHARE[p.confidence]
            )
            for key, p in believed.items()
        )


def ranked(study: Study) -> list[FrozenTrial]:
    """The trials that have a value, best first; a trial that was ended early counts with its last one."""
    if len(study.directions) > 1:
        return []
    sign = -1 if study.direction == StudyDirection.MAXIMIZE else 1
    known = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    valued = [(sign * value, trial) for trial in known if math.isfinite(value := last_value(trial))]
    return [trial for _, trial in sorted(valued, key=lambda pair: pair[0])]


def last_value(trial: FrozenTrial) -> float:
    """What is known last of a trial; NaN where nothing is, or where it went wrong."""
    if any(violation > 0 for violation in trial.constraints.values()):
        return math.nan
    if trial.state == TrialState.COMPLETE:
        return float(trial.values[0])
    steps = trial.intermediate_values
    return steps[max(steps)] if steps else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
