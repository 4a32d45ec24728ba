"""A sampler that starts from the author's beliefs and leaves them as fast as the trials contradict them.

The first trials are drawn by the prior and evenly. After that a Gaussian process predicts how a trial would
end, and the next point is the candidate of the largest expected improvement. Candidates come from the prior,
from the whole space and from the neighbourhood of the best trials. The improvement counts by the prior's
density to the power of β/n after n trials, so that a wrong prior fades (πBO: Hvarfner et al., ICLR 2022).

A trial that was ended early, or that waits at a rung, counts with what it would have reached: its last value
plus what those that went on have gained since that step.
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
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from cbe.spec import Parameter
from cbe.study.search.coordinates import Places
from cbe.study.search.forecast import scores
from cbe.study.search.gaussian_process import GaussianProcess
from cbe.study.search.transfer import FROM

SOURCE = "cbe:source"  # the system attribute that names the source of a trial
PAUSED = "paused"  # the user attribute of a trial that waits at a rung, or has waited there
Source = Literal["prior", "even", "model"]
Array = np.ndarray[Any, Any]

PRIOR_FIRST = 1 / 2  # of the first trials are drawn by the prior at most, the others evenly
EXPLORE = 0.1  # of the later ones are drawn evenly, whatever the model says
CANDIDATES = 150  # of each kind
NEIGHBOURS = 3  # trials whose neighbourhood is searched
NEAR, KEEP = 0.3, 0.3  # around them: width as a share of the range, and how often a value stays
FADE = 0.5  # β: the prior counts as much as the improvement after so many trials
UNFINISHED = 4.0  # how much noisier the end of a trial is that was ended early
SAME = 1e-9  # the difference of coordinates that rounding makes
MAX_MODEL_TRIALS = 150  # trials that the model is fitted to: the best half, and the latest of the others


def tpe(seed: int, startup: int) -> TPESampler:
    """Optuna's TPE over all parameters together, conditional ones in groups of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(
            seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True
        )


class PriorSampler(BaseSampler):
    """Suggests by the prior, and by a model of the space as soon as there is one."""

    def __init__(
        self, search: Mapping[str, Parameter], base: Mapping[str, Any], seed: int, startup: int
    ) -> None:
        """`startup` trials end or wait at a rung before a model is fitted.

        `base` has the values of what is not searched.
        """
        self._search, self._startup = search, startup
        self._space: dict[str, BaseDistribution] = {key: p.distribution() for key, p in search.items()}
        self._places = Places(search, base)
        self._has_priors = any(parameter.prior for parameter in search.values())
        shares = [parameter.prior.share for parameter in search.values() if parameter.prior]
        self._by_prior = min(PRIOR_FIRST, max(shares, default=0.0))
        self._rng = np.random.default_rng(seed)
        self._model = GaussianProcess(self._places.groups)
        self._threads = ThreadpoolController()
        self._tpe = tpe(seed, startup)  # for several objectives

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if len(study.directions) > 1:
            return self._tpe.infer_relative_search_space(study, trial)
        return dict(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters; those that do not apply are never asked for."""
        if len(study.directions) > 1:
            found = self._tpe.sample_relative(study, trial, search_space)
            # Optuna's multiples of a step are off by rounding: 0.8999999999999999 where the space has 0.9.
            return {key: self._search[key].clamp(value) for key, value in found.items()}
        source, point = self._suggest(study, trial.number)
        study._storage.set_trial_system_attr(trial._trial_id, SOURCE, source)
        return point

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that TPE has not met yet."""
        value = self._tpe.sample_independent(study, trial, param_name, param_distribution)
        return self._search[param_name].clamp(value)

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self._tpe.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._tpe.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._tpe.after_trial(study, trial, state, values)

    def _suggest(self, study: Study, number: int) -> tuple[Source, dict[str, Any]]:
        known = study.get_trials(deepcopy=False)
        told = [trial for trial in known if _has_told(trial)]
        draw = self._rng.random()
        if len(told) < self._startup:
            if draw < self._by_prior:
                return "prior", {key: parameter.draw(self._rng) for key, parameter in self._search.items()}
            return "even", self._drawn_evenly()
        if draw < EXPLORE:
            return "even", self._drawn_evenly()
        running = [
            each.params
            for each in known
            if each.state == TrialState.RUNNING and each.number != number and not _has_told(each)
        ]
        with self._threads.limit(limits=1):  # matrices this small gain nothing, and trials want the cores
            return "model", self._best_candidate(study, told, [params for params in running if params])

    def _drawn_evenly(self) -> dict[str, Any]:
        return {key: parameter.draw_evenly(self._rng) for key, parameter in self._search.items()}

    def _best_candidate(
        self, study: Study, told: Sequence[FrozenTrial], running: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        sign = -1 if study.direction == StudyDirection.MAXIMIZE else 1
        values, whole = expected_ends(told, sign)
        scored = scores(values)
        kept = _most_telling(scored)
        places = np.array([self._places.of(told[n].params) for n in kept])
        noise = np.where(whole[kept], 1.0, UNFINISHED)
        self._model.fit(places, scored[kept], noise)
        if running:  # as if they had ended as predicted, so that the next is not the same again
            waiting = np.array([self._places.of(params) for params in running])
            guessed = self._model.predict(waiting)[0]
            places, noise = np.vstack([places, waiting]), np.append(noise, np.ones(len(waiting)))
            self._model.fit(places, np.append(scored[kept], guessed), noise, keep=True)
        predicted = self._model.predict(places)[0]
        candidates = self._candidates(places[np.argsort(predicted)[:NEIGHBOURS]])
        mean, deviation = self._model.predict(candidates)
        gain = log_improvement(float(predicted.min()), mean, deviation)
        if self._has_priors:
            gain += FADE / len(told) * self._places.log_prior(candidates)
        here = [FROM not in told[n].user_attrs for n in kept] + [True] * len(running)
        return self._first_new(candidates[np.argsort(-gain, kind="stable")], places[here])

    def _first_new(self, candidates: Array, tried: Array) -> dict[str, Any]:
        """The first candidate that was not tried yet: the same config would only end the same again."""
        for candidate in candidates:
            point = self._places.point(candidate)
            if not (np.abs(tried - self._places.of(point)) < SAME).all(axis=1).any():
                return point
        return self._places.point(candidates[0])

    def _candidates(self, best: Array) -> Array:
        around = [self._places.near(place, CANDIDATES // len(best), NEAR, KEEP, self._rng) for place in best]
        drawn = [self._places.evenly(CANDIDATES, self._rng)]
        if self._has_priors:
            drawn.append(self._places.by_prior(CANDIDATES, self._rng))
        return np.vstack([*drawn, *around])


def _has_told(trial: FrozenTrial) -> bool:
    """Whether a trial has ended, or was compared at a rung at least."""
    if trial.state == TrialState.RUNNING:
        return PAUSED in trial.user_attrs and bool(trial.intermediate_values)
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def expected_ends(trials: Sequence[FrozenTrial], sign: int) -> tuple[Array, Array]:
    """What each trial has reached or would have, lower being better, and whether it was trained to its end.

    A trial that went wrong is as bad as none can be.
    """
    whole = np.array([trial.state == TrialState.COMPLETE for trial in trials])
    curves = [trial.intermediate_values for trial in trials]
    found = np.full(len(trials), math.inf)
    for n, trial in enumerate(trials):
        if any(violation > 0 for violation in trial.constraints.values()):
            continue
        if whole[n]:
            found[n] = sign * trial.values[0]
        elif curves[n]:
            last = max(curves[n])
            gains = [
                trial.values[0] - curve[last]
                for trial, curve, ended in zip(trials, curves, whole, strict=True)
                if ended and last in curve and math.isfinite(curve[last])
            ]
            found[n] = sign * (curves[n][last] + (float(np.median(gains)) if gains else 0.0))
    return np.where(np.isnan(found), math.inf, found), whole


def log_improvement(best: float, mean: Array, deviation: Array) -> Array:
    """Logarithm of the expected improvement on the best."""
    z = (best - mean) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(np.log(np.maximum(deviation * (z * ndtr(z) + density), 1e-300)))


def _most_telling(scored: Array) -> Array:
    """The trials that the model is fitted to: the best, and the latest of the others."""
    if len(scored) <= MAX_MODEL_TRIALS:
        return np.arange(len(scored))
    best = np.argsort(scored, kind="stable")[: MAX_MODEL_TRIALS // 2]
    others = np.setdiff1d(np.arange(len(scored)), best)
    return np.sort(np.append(best, others[-(MAX_MODEL_TRIALS - len(best)) :]))
