"""The sampler's side of a study: an Optuna study that says the truth about every trial.

Only trials that lie in the search space are in it: what was sampled, the grid's points, the paper's config
where the space contains it. It lives in memory. A driver makes it from the store's rows when it starts, and
tells it what happens; `mirror` copies it to where `optuna-dashboard` looks.

Each suggestion has a seed of its own, made from the study's and the trial's number. So a study that was
interrupted suggests what it would have suggested otherwise, where trials run one at a time. That is so with
every sampler but cmaes, whose state is a pickle: it is fitted anew, one generation a trial.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from cbe.spec import StudyConfig
from cbe.spec.search import applicable, order
from cbe.spec.terms import Pair
from cbe.store.history import PAUSED, about, ending, is_in_space, remembered
from cbe.store.recorder import Recorder
from cbe.store.rows import Row, pair_of
from cbe.store.states import FINAL
from cbe.study.assignment import Assignment
from cbe.study.search.mirror import Mirror
from cbe.study.search.prior_sampler import PriorSampler, tpe
from cbe.study.search.transfer import Transfer, with_priors

Rows = Mapping[str, Row]  # the store's trials by name

optuna.logging.set_verbosity(optuna.logging.WARNING)


NOT_KEPT = ("constraints", "cma:optimizer")  # the first follows from the row; a pickle is never read
FIRST = 6  # trials before the model of `prior` is fitted


def _startup(study: StudyConfig) -> int:
    """Random trials before a model of the space is fitted; fewer where the budget is small."""
    return max(4, min(10, study.trials // 3))


SAMPLERS: dict[str, Callable[[StudyConfig, int], BaseSampler]] = {
    # Draws by the trial's number itself, and keeps what it has computed of the history.
    "prior": lambda study, seed: PriorSampler(study.search, study.values({}), study.sampler.seed, FIRST),
    "tpe": lambda study, seed: tpe(seed, _startup(study)),
    "gp": lambda study, seed: optuna.samplers.GPSampler(
        seed=seed, n_startup_trials=_startup(study), deterministic_objective=False
    ),
    "cmaes": lambda study, seed: optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=_startup(study)),
    "nsga2": lambda study, seed: optuna.samplers.NSGAIISampler(
        seed=seed, population_size=max(4, min(50, study.trials // 4))
    ),
    "random": lambda study, seed: optuna.samplers.RandomSampler(seed=seed),
    "grid": lambda study, seed: optuna.samplers.RandomSampler(seed=seed),  # never asked: all points are given
    # Its place in the sequence is noted in the study, and the scrambling must stay as it was.
    "sobol": lambda study, seed: optuna.samplers.QMCSampler(
        seed=study.sampler.seed,
        independent_sampler=RandomSampler(seed=seed),
        scramble=True,
        warn_asynchronous_seeding=False,
        warn_independent_sampling=False,
    ),
}


def sampler(study: StudyConfig, number: int) -> BaseSampler:
    """The study's sampler, as it suggests the trial of this number."""
    seed = int(np.random.SeedSequence([study.sampler.seed, number]).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return SAMPLERS[study.sampler.name](study, seed)


class Sampling:
    """Asks for points and tells what became of them."""

    def __init__(
        self,
        study: StudyConfig,
        recorder: Recorder | None = None,
        learned: Transfer | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """Makes the history from what a recorder has loaded, and from what earlier studies gave."""
        self._config, self._mirror = study, mirror
        self.transfer = learned or Transfer()
        self._given = with_priors(study, self.transfer.priors)
        self._storage = InMemoryStorage()
        self._optuna = optuna.create_study(
            study_name=study.name,
            storage=self._storage,
            sampler=sampler(self._given, 0),
            pruner=optuna.pruners.NopPruner(),
            directions=[objective.direction for objective in study.objectives],
        )
        self._optuna.set_user_attr("question", study.question)
        if self.transfer.studies:
            self._optuna.set_user_attr("transfer", self.transfer.to_plain())
        self._numbers: dict[str, int] = {}  # of trials by name
        self._noted: dict[str, dict[str, Any]] = {}  # what asking for a trial has changed of the study
        self._optuna.add_trials(self.transfer.told(study))
        self.taken_back: frozenset[str] = frozenset()
        if recorder:
            self._remember(recorder)
        if mirror:
            mirror.follow(self._optuna)

    def _remember(self, recorder: Recorder) -> None:
        """Takes in the trials of earlier drivers; names are in the order in which they were asked for."""
        rows, metric = recorder.rows.copy(), self._config.objectives[0].metric
        self.taken_back = frozenset(_taken_back(self._config, rows))
        for name in sorted(rows.keys() - self.taken_back, key=lambda name: int(name[1:])):
            row = rows[name]
            if (row["params"] or "{}") == "{}" or not self._compares(pair_of(row)):
                continue
            curve = recorder.past.curve(name, metric)
            trial = remembered(self._config, row, curve or None, for_sampler=True)
            if trial is None:
                continue
            self._numbers[name] = self._count
            self._optuna.add_trial(trial)
            self._noted[name] = json.loads(row["sampler"] or "{}").get("study", {})
            for key, value in self._noted[name].items():
                self._storage.set_study_system_attr(self._optuna._study_id, key, value)

    def _compares(self, pair: Pair) -> bool:
        """Whether the sampler hears of trials on a pair; in a race only the best go on to further ones."""
        return not self._config.is_race or pair == self._config.pairs[0]

    @property
    def _count(self) -> int:
        return len(self._optuna.get_trials(deepcopy=False))

    def trials(self) -> dict[str, FrozenTrial]:
        """What the sampler knows, by our names of the trials."""
        known = self._optuna.get_trials(deepcopy=False)
        return {name: known[number] for name, number in self._numbers.items()}

    def number(self, name: str) -> int | None:
        """The number of a trial; None where the sampler has no part in it."""
        return self._numbers.get(name)

    def noted(self, name: str) -> str | None:
        """What the store keeps for the sampler of a trial, as JSON."""
        if name not in self._numbers:
            return None
        trial = self._trial(self._numbers[name])
        own = {key: value for key, value in trial.system_attrs.items() if not key.startswith(NOT_KEPT)}
        plain = {"trial": own, "study": self._noted.get(name, {}), PAUSED: PAUSED in trial.user_attrs}
        kept = {key: value for key, value in plain.items() if value}
        return json.dumps(kept) if kept else None

    def ask(self, name: str, pair: Pair) -> Assignment:
        """A new point; it may turn out that it cannot be built."""
        if self._config.sampler.name != "prior":
            self._optuna.sampler = sampler(self._given, self._count)
        before = dict(self._storage.get_study_system_attrs(self._optuna._study_id))
        trial = self._optuna.ask()
        point: dict[str, Any] = {}
        for key in order(self._config.search):
            parameter = self._config.search[key]
            if applicable(key, parameter, self._config.values(point)):
                point[key] = parameter.suggest(trial, key)
        for key, value in about(name, pair, None).items():
            trial.set_user_attr(key, value)
        after = self._storage.get_study_system_attrs(self._optuna._study_id)
        self._noted[name] = {key: value for key, value in after.items() if before.get(key) != value}
        self._numbers[name] = trial.number
        self._changed(trial.number)
        return Assignment(name, "search", pair, point, number=trial.number)

    def add(self, assignment: Assignment) -> Assignment:
        """Takes a given point into the history, where it lies in the space."""
        if not is_in_space(self._config, assignment.point) or not assignment.point:
            return assignment
        point, number = dict(assignment.point), self._count
        self._optuna.add_trial(
            optuna.create_trial(
                state=TrialState.RUNNING,
                params=point,
                distributions={key: self._config.search[key].distribution() for key in point},
                user_attrs=about(assignment.trial, assignment.pair, assignment.preset),
            )
        )
        self._numbers[assignment.trial] = number
        self._changed(number)
        return Assignment(**{**vars(assignment), "number": number})

    def report(self, number: int, step: int, value: float) -> None:
        """An intermediate value; Optuna knows none where there are several objectives."""
        trial = self._trial(number)
        told = trial.state.is_finished() or step in trial.intermediate_values
        if not told and len(self._config.objectives) == 1:
            self._storage.set_trial_intermediate_value(trial._trial_id, step, value)
            self._changed(number)

    def pause(self, name: str) -> None:
        """A trial waits at a rung: its values so far count, though it may go on."""
        if name not in self._numbers:
            return
        trial = self._trial(self._numbers[name])
        if not trial.state.is_finished() and PAUSED not in trial.user_attrs:
            self._storage.set_trial_user_attr(trial._trial_id, PAUSED, True)
            self._changed(trial.number)

    def tell(
        self, number: int, state: str, values: list[float] | None, error_class: str | None = None
    ) -> None:
        """How a trial ended; said twice, the second time does not count."""
        trial = self._trial(number)
        if trial.state.is_finished():
            return
        as_told, values, constraint = ending(self._config, state, values, error_class)
        if constraint:
            attributes = optuna.create_trial(state=as_told, constraints=dict([constraint])).system_attrs
            for key, value in attributes.items():
                self._storage.set_trial_system_attr(trial._trial_id, key, value)
        self._optuna.tell(number, values, as_told)
        self._changed(number)

    def _trial(self, number: int) -> FrozenTrial:
        study = self._optuna._study_id
        return self._storage.get_trial(self._storage.get_trial_id_from_study_id_trial_number(study, number))

    def _changed(self, number: int) -> None:
        if self._mirror:
            self._mirror.note(number)


def _taken_back(study: StudyConfig, rows: Rows) -> Iterator[str]:
    """Trials that were asked for and have not begun, and that a lowered budget has no room for any more.

    Their rows stay as they are: should the budget be raised, they run.
    """
    limit = study.first_pair_trials if study.is_race else study.trials
    search = [
        name
        for name, row in rows.items()
        if row["role"] == "search" and row["state"] != "infeasible"
        if not study.is_race or pair_of(row) == study.pairs[0]
    ]
    surplus = len(search) - limit
    for name in sorted(search, key=lambda name: -int(name[1:])):
        row = rows[name]
        if surplus > 0 and row["state"] not in FINAL and not (row["preset"] or row["step"] or row["wall_s"]):
            surplus -= 1
            yield name
