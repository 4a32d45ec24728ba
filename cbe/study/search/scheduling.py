"""Which trials go on: Ray Tune's schedulers and `race`, over steps and the study's first objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import cbe.environment  # noqa: F401  before Ray

# isort: split
import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)

from cbe.spec import Parameter, StudyConfig
from cbe.spec.terms import Pair, Preset
from cbe.study.search.race import Race, trial_name


class Curve(NamedTuple):
    """What a trial had reported before the study went on, in the order of steps."""

    trial: str
    objective: Iterable[tuple[int, float]]
    pair: Pair | None = None  # None: the first
    preset: Preset | None = None  # one of the fixed configs, which are never judged
    failed: bool = False


Judges = Callable[[Trial], bool]
Curves = Iterable[Curve | tuple[str, Iterable[tuple[int, float]]]]


class Judge(TrialScheduler):
    """Lets a scheduler judge what the search samples; fixed configs and confirmations run to their end."""

    def __init__(self, inner: TrialScheduler, judges: Judges, compares: Judges) -> None:
        """`compares` tells which trials show how those that are judged would go on, themselves included."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._inner, self._judges, self._compares = inner, judges, compares

    def replay(self, study: StudyConfig, curves: Curves) -> None:
        """Takes in what trials have reported elsewhere: before the study was resumed, or in another study."""
        # The only ones that compare with trials that are no longer running.
        if isinstance(self._inner, ASHAScheduler):
            _replay_asha(self._inner, study, curves)
        elif isinstance(self._inner, Race):
            _replay_race(self._inner, study, curves)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        if self._judges(trial):
            # A population refuses searchers, which would go on sampling what it mutates. Ours do not: they
            # give it its first members.
            no_searcher: Any = SimpleNamespace(search_alg=None)
            is_population = isinstance(self._inner, PopulationBasedTraining)
            self._inner.on_trial_add(no_searcher if is_population else tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if "error_class" not in result and "paused" not in result:
            if self._judges(trial):
                return str(self._inner.on_trial_result(tune_controller, trial, result))
            if isinstance(self._inner, Race) and self._compares(trial):
                self._inner.observe(trial, result)
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if self._judges(trial):
            self._inner.on_trial_complete(tune_controller, trial, result)
        elif isinstance(self._inner, Race):
            self._inner.on_others_complete(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        if self._judges(trial):
            self._inner.on_trial_error(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        if self._judges(trial):
            self._inner.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        waiting = (
            t for t in tune_controller.get_live_trials() if t.status == Trial.PENDING and not self._judges(t)
        )
        return next(waiting, None) or self._inner.choose_trial_to_run(tune_controller)

    def debug_string(self) -> str:
        return str(self._inner.debug_string())

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return True


class _Asha(ASHAScheduler):
    """Ray's, which knows trials by our names, so that a resumed study goes on with those it had.

    By Tune's ids they would be new, and judged at rungs behind them by values that come later.
    """

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_add(tune_controller, _by_name(trial))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        return str(super().on_trial_result(tune_controller, _by_name(trial), result))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, _by_name(trial), result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_remove(tune_controller, _by_name(trial))


def _by_name(trial: Trial) -> Any:
    return SimpleNamespace(trial_id=trial_name(trial))


class _HyperBand(HyperBandScheduler):
    """Ray's, in which trials would wait for ever where nobody of their bracket is left to report.

    That is so where one evaluation passes several rungs, and where a trial fails after the first rung.
    """

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        bracket, _ = self._trial_info[trial]
        bracket.cleanup_trial(trial)
        if not bracket.is_being_processed:
            self._process_bracket(tune_controller, bracket)

    def _process_bracket(self, tune_controller: Any, bracket: Any) -> str:
        action, bracket.is_being_processed = TrialScheduler.PAUSE, True
        while bracket.current_trials():
            said = super()._process_bracket(tune_controller, bracket)
            action = action if action == TrialScheduler.STOP else said  # of the trial that has reported
            if bracket.finished() or not bracket.cur_iter_done():
                break
        bracket.is_being_processed = False
        return str(action)


class _Population(PopulationBasedTraining):
    """Ray's, in which a trial that has reported its last step would be copied: nothing is left to train."""

    last_step = 0

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if result["step"] >= self.last_step:
            return str(TrialScheduler.CONTINUE)
        return str(super().on_trial_result(tune_controller, trial, result))


def scheduler(study: StudyConfig, curves: Curves = ()) -> Judge:
    """The study's scheduler; `curves` are of trials that began before: they, and new ones, are compared."""
    made = Judge(SCHEDULERS[study.scheduler.name](study), _judges(study), _compares(study))
    made.replay(study, curves)
    return made


def _judges(study: StudyConfig) -> Judges:
    """Whether a trial may be stopped: one that was sampled and is not on a further pair of a race."""
    compares = _compares(study)
    return lambda trial: compares(trial) and not trial.config["preset"]


def _compares(study: StudyConfig) -> Judges:
    """Whether a trial of the search is on the pair on which trials are judged."""
    first = study.pairs[0] if study.scheduler.name == "race" else None

    def compares(trial: Trial) -> bool:
        searches = trial.config["role"] == "search"
        return searches and first in (None, tuple(trial.config.get("pair") or first or ()))

    return compares


def _replay_asha(made: ASHAScheduler, study: StudyConfig, curves: Curves) -> None:
    for each in (Curve(*given) for given in curves):
        if each.preset:
            continue
        past: Any = SimpleNamespace(config={"trial": each.trial})
        nobody: Any = None
        made.on_trial_add(nobody, past)
        for step, value in each.objective:
            made.on_trial_result(nobody, past, {"step": step, study.objectives[0].metric: value})


def _replay_race(made: Race, study: StudyConfig, curves: Curves) -> None:
    for given in curves:
        curve = given if isinstance(given, Curve) else Curve(*given)
        if curve.pair in (None, study.pairs[0]):
            made.replay(curve.trial, curve.objective, not curve.preset, curve.failed)


def _target(study: StudyConfig) -> dict[str, Any]:
    return {"time_attr": "step", "metric": study.objectives[0].metric, "mode": _mode(study)}


def _mode(study: StudyConfig) -> str:
    return "min" if study.objectives[0].direction == "minimize" else "max"


def _asha(study: StudyConfig) -> TrialScheduler:
    return _Asha(
        **_target(study),
        max_t=study.training.steps,
        grace_period=study.scheduler.grace_steps(study.training),
        reduction_factor=study.scheduler.reduction,
    )


def _hyperband(study: StudyConfig) -> TrialScheduler:
    return _HyperBand(
        **_target(study), max_t=study.training.steps, reduction_factor=study.scheduler.reduction
    )


def _median(study: StudyConfig) -> TrialScheduler:
    return MedianStoppingRule(
        **_target(study), grace_period=study.scheduler.grace_steps(study.training), min_samples_required=3
    )


def _pbt(study: StudyConfig) -> TrialScheduler:
    rng = np.random.default_rng(study.sampler.seed)

    def within(config: dict[str, Any]) -> dict[str, Any]:
        """A perturbed value may leave its range."""
        config["point"] = {key: study.search[key].clamp(value) for key, value in config["point"].items()}
        return config

    def mutations(parameter: Parameter) -> list[Any] | Callable[[], Any]:
        """Choices to step through, or what draws a number; Ray multiplies numbers, too."""
        if parameter.scale == "category":
            return list(parameter.values())
        return partial(parameter.draw_evenly, rng)

    made = _Population(
        **_target(study),
        perturbation_interval=study.scheduler.grace_steps(study.training),
        hyperparam_mutations={"point": {key: mutations(p) for key, p in study.search.items() if not p.when}},
        custom_explore_fn=within,
        require_attrs=False,
    )
    made.last_step = study.training.steps
    return made


def _race(study: StudyConfig) -> TrialScheduler:
    metric = study.objectives[0].metric
    return Race(
        study.scheduler.rung_steps(study.training),
        study.training.steps,
        study.scheduler.reduction,
        metric,
        _mode(study),
        judges=_judges(study),
    )


SCHEDULERS: Mapping[str, Callable[[StudyConfig], TrialScheduler]] = {
    "asha": _asha,
    "hyperband": _hyperband,
    "median": _median,
    "pbt": _pbt,
    "race": _race,
    "none": lambda study: FIFOScheduler(),
}
