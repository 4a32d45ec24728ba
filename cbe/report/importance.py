"""Which searched parameters decide whether a config is good, and how sure that is.

PED-ANOVA asks what separates the best quarter of the configs from all of them. fANOVA, the other one that
Optuna has, agrees on what matters most (200 made-up trials of the quickstart's search, two real effects), but
takes 4 s for 200 trials and 46 s for 1,000, PED-ANOVA 0.02 s and 0.08 s: only that can be repeated for a
spread. fANOVA also has no place for parameters that some configs do not have; PED-ANOVA counts them in the
configs that have them (https://arxiv.org/abs/2601.20800).
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from statistics import mean

import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from cbe.configs import counts
from cbe.spec import StudyConfig
from cbe.spec.terms import Direction
from cbe.store.history import remembered
from cbe.store.rows import Row
from cbe.words import plural

FEWEST = 8  # configs: of fewer, the best quarter is one
MAX_CONFIGS = 300  # configs, drawn from all: more take seconds longer and hardly move the shares
RESAMPLES = 40
TARGET = 0.25  # the share of configs that counts as the best
_SPREAD = 0.05  # of the resamples are cut off at either end


@dataclass(frozen=True)
class Importance:
    """A parameter's share in what makes configs good; all shares sum to 1."""

    key: str
    value: float
    low: float  # the middle 90 % of what other draws of the same configs would have said
    high: float
    n: int  # configs that have the parameter, of those looked at
    of: int  # configs trained to their end; of more than MAX_CONFIGS, so many are looked at


def importances(study: StudyConfig, rows: Iterable[Row]) -> list[Importance] | str:
    """The searched parameters, the most important first; or why nothing can be said."""
    random = Random(0)  # the same study gives the same page
    everything = _configs(study, rows)
    configs = everything if len(everything) <= MAX_CONFIGS else random.sample(everything, MAX_CONFIGS)
    if len(configs) < FEWEST:
        return f"{plural(len(configs), 'config')} of the search completed, and {FEWEST} are needed"
    if len({config.value for config in configs}) < 2:
        return "all configs ended at the same value: nothing tells their parameters apart"
    with _quiet():
        return _ranked(study, configs, len(everything), random)


def _ranked(
    study: StudyConfig, configs: Sequence[FrozenTrial], of: int, random: Random
) -> list[Importance] | str:
    direction = study.objectives[0].direction
    found = _shares(direction, configs)
    if not found:
        return "the best configs differ from the others in no parameter"
    draws = [_shares(direction, random.choices(configs, k=len(configs))) for _ in range(RESAMPLES)]
    draws = [draw for draw in draws if draw]
    has = {key: sum(key in config.params for config in configs) for key in study.search}
    ranked = sorted(found, key=lambda key: (-found[key], key))
    return [Importance(key, found[key], *_spread(key, found[key], draws), has[key], of) for key in ranked]


def _configs(study: StudyConfig, rows: Iterable[Row]) -> list[FrozenTrial]:
    """The search's completed trials, those of one config on several seeds as one trial with their mean."""
    of_config: dict[str, list[FrozenTrial]] = defaultdict(list)
    for row in rows:
        if row["role"] == "search" and counts(row) and (trial := remembered(study, row)):
            of_config[row["config_id"]].append(trial)
    return [
        optuna.create_trial(
            state=TrialState.COMPLETE,
            params=trials[0].params,
            distributions=trials[0].distributions,
            value=mean(trial.values[0] for trial in trials),
        )
        for trials in of_config.values()
        if trials[0].params
    ]


def _shares(direction: Direction, configs: Sequence[FrozenTrial]) -> dict[str, float]:
    if len({config.value for config in configs}) < 2:
        return {}
    study = optuna.study.create_study(storage=optuna.storages.InMemoryStorage(), direction=direction)
    study.add_trials(configs)
    found = PedAnovaImportanceEvaluator(target_quantile=TARGET).evaluate(study)
    whole = sum(found.values())
    return {key: float(value) / whole for key, value in found.items()} if whole > 0 else {}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Optuna from telling of every study it makes, and from warning of draws with little to tell."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _spread(key: str, value: float, draws: Sequence[dict[str, float]]) -> tuple[float, float]:
    shares = sorted(draw.get(key, 0.0) for draw in draws)
    if not shares:
        return value, value
    cut = round(_SPREAD * len(shares))
    low, high = shares[cut], shares[-1 - cut]
    return min(low, value), max(high, value)
