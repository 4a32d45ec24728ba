"""The sampler's side of a study: an Optuna study that says the truth about every trial.

Only trials that lie in the search space are in it: what was sampled, the grid's points, the paper's config
where the space contains it. Its storage is a journal file or any Optuna URL, so `optuna-dashboard` opens it
while the study runs. Should it be lost, or the space be edited, it is made again from the Parquet store.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.spec.search import applicable, order
from cbe.spec.terms import Pair
from cbe.store.history import AVOIDED, about, is_in_space, remembered, told
from cbe.study.assignment import Assignment
from cbe.study.search.prior_sampler import PAUSED, PriorSampler, tpe
from cbe.study.search.transfer import Transfer, with_priors

Rows = Mapping[str, Mapping[str, Any]]  # the store's trials by name

optuna.logging.set_verbosity(optuna.logging.WARNING)


FIRST = 6  # trials before the model of `prior` is fitted


def _startup(study: StudyConfig) -> int:
    """Random trials before a model of the space is fitted; fewer where the budget is small."""
    return max(4, min(10, study.trials // 3))


SAMPLERS: dict[str, Callable[[StudyConfig, int], BaseSampler]] = {
    "prior": lambda study, seed: PriorSampler(study.search, study.values({}), seed, FIRST),
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
    # Its place in the sequence is kept in the study, and the scrambling must stay as it was.
    "sobol": lambda study, seed: optuna.samplers.QMCSampler(
        seed=study.sampler.seed,
        scramble=True,
        warn_asynchronous_seeding=False,
        warn_independent_sampling=False,
    ),
}


def sampler(study: StudyConfig, told: int) -> BaseSampler:
    """The study's sampler; after so many trials with another seed, or it would suggest the same again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return SAMPLERS[study.sampler.name](study, (study.sampler.seed + 1_000_003 * told) % 2**32)


class Sampling:
    """Asks for points and tells what became of them."""

    def __init__(
        self,
        study: StudyConfig,
        storage: BaseStorage,
        rows: Rows,
        home: str = "",
        transfer: Callable[[], Transfer] = Transfer,
    ) -> None:
        """Opens the sampler's history; `rows` are the trials that the store at `home` knows, by name.

        `transfer` gives what earlier studies know. It is asked when the history is made, and not again.
        """
        self._config = study
        self._home = home
        self._transfer = transfer
        self._storage = storage
        self._optuna = self._open(rows)
        self._running: dict[int, optuna.Trial] = {}
        self._said: dict[int, set[int]] = {}  # steps that an earlier driver has told of each

    def _open(self, rows: Rows) -> optuna.Study:
        space = json.dumps({key: p.model_dump(mode="json") for key, p in self._config.search.items()})
        names = [name for name in optuna.get_all_study_names(self._storage) if self._is_ours(name)]
        generation = len(names)
        known = [optuna.load_study(study_name=name, storage=self._storage) for name in names]
        # Another store may have a study of this name, and the same database for its history.
        ours = [each for each in known if each.user_attrs.get("home") == self._home]
        if ours:
            last = max(ours, key=lambda each: each._study_id)
            if last.user_attrs.get("space") == space:
                given = last.user_attrs.get("transfer", {}).get("priors", {})
                told = len(last.get_trials(deepcopy=False))
                last.sampler = sampler(with_priors(self._config, given), told)
                return last
        learned = self._transfer()
        made = optuna.create_study(
            study_name=self._named(generation + 1),
            storage=self._storage,
            sampler=sampler(with_priors(self._config, learned.priors), len(rows)),
            pruner=optuna.pruners.NopPruner(),
            directions=[objective.direction for objective in self._config.objectives],
        )
        made.set_user_attr("question", self._config.question)
        made.set_user_attr("home", self._home)
        if learned.studies:
            made.set_user_attr("transfer", learned.to_plain())
            made.add_trials(learned.trials)
        past = (remembered(self._config, row, for_sampler=True) for row in rows.values())
        made.add_trials([trial for trial in past if trial])
        made.set_user_attr("space", space)  # last: a history that was cut short is made again
        return made

    @property
    def transfer(self) -> dict[str, Any]:
        """What earlier studies gave: their names, how many trials, and the priors by dotted key."""
        found: dict[str, Any] = self._optuna.user_attrs.get("transfer", {})
        return found

    def _named(self, generation: int) -> str:
        return self._config.name if generation == 1 else f"{self._config.name} ({generation})"

    def _is_ours(self, name: str) -> bool:
        return name == self._config.name or name.startswith(f"{self._config.name} (")

    def trials(self) -> dict[str, FrozenTrial]:
        """What the sampler knows, by our names of the trials."""
        known = self._optuna.get_trials(deepcopy=False)
        return {trial.user_attrs["trial"]: trial for trial in known if "trial" in trial.user_attrs}

    def abandon_nameless(self) -> None:
        """Ends what was asked for by a driver that died before it could name it."""
        for trial in self._optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING)):
            if "trial" not in trial.user_attrs:
                self._optuna.tell(trial.number, state=TrialState.FAIL)

    def ask(self, name: str, pair: Pair) -> Assignment:
        """A new point; it may turn out that it cannot be built."""
        trial = self._optuna.ask()
        point: dict[str, Any] = {}
        for key in order(self._config.search):
            parameter = self._config.search[key]
            if applicable(key, parameter, self._config.values(point)):
                point[key] = parameter.suggest(trial, key)
        # The name comes last of all: a trial that has one is whole, whenever the driver died.
        for key, value in about(name, pair, None).items():
            trial.set_user_attr(key, value)
        self._running[trial.number] = trial
        return Assignment(name, "search", pair, point, number=trial.number)

    def add(self, assignment: Assignment) -> Assignment:
        """Takes a given point into the history, where it lies in the space."""
        if not is_in_space(self._config, assignment.point) or not assignment.point:
            return assignment
        point = dict(assignment.point)
        self._optuna.add_trial(
            optuna.create_trial(
                state=TrialState.RUNNING,
                params=point,
                distributions={key: self._config.search[key].distribution() for key in point},
                user_attrs=about(assignment.trial, assignment.pair, assignment.preset),
            )
        )
        number = len(self._optuna.get_trials(deepcopy=False)) - 1
        return Assignment(**{**vars(assignment), "number": number})

    def report(self, number: int, step: int, value: float) -> None:
        """An intermediate value; Optuna knows none where there are several objectives."""
        trial = self._open_trial(number)
        if trial is None or len(self._config.objectives) > 1 or step in self._said.get(number, ()):
            return
        trial.report(value, step)

    def pause(self, name: str) -> None:
        """A trial waits at a rung: its values so far count, though it may go on."""
        trial = self.trials().get(name)
        if trial is not None and not trial.state.is_finished() and PAUSED not in trial.user_attrs:
            self._storage.set_trial_user_attr(trial._trial_id, PAUSED, True)

    def tell(
        self, number: int, state: str, values: list[float] | None, error_class: str | None = None
    ) -> None:
        """How a trial ended; said twice, the second time does not count."""
        trial = self._open_trial(number)
        self._running.pop(number, None)
        if trial is not None:
            if error_class in AVOIDED and self._config.sampler.name in ("prior", "tpe"):  # the others warn
                trial.set_constraint(*AVOIDED[error_class])
            self._optuna.tell(trial, values if state == "completed" else None, told(state, error_class))

    def _open_trial(self, number: int) -> optuna.Trial | None:
        if number not in self._running:
            known = self._optuna.get_trials(deepcopy=False)[number]
            if known.state.is_finished():
                return None
            self._running[number] = optuna.Trial(self._optuna, known._trial_id)
            self._said[number] = set(known.intermediate_values)
        return self._running[number]


def open_storage(url: str | None, journal: Path) -> BaseStorage:
    """Optuna's storage at a URL, or else a journal file."""
    if url is not None:
        try:
            return optuna.storages.RDBStorage(url)
        except Exception as error:  # SQLAlchemy and its drivers raise errors of their own
            reason = str(error).splitlines()[0]
            raise InputError(
                f"storage.optuna: cannot be opened ({reason}); give an Optuna storage URL, as sqlite:///optuna.db"
            ) from None
    journal.parent.mkdir(parents=True, exist_ok=True)
    _mend(journal)
    return JournalStorage(Journal(journal))


class Journal(JournalFileBackend):
    """Optuna's journal file, written without waiting for the disk.

    A trial of ten reports writes it nineteen times. What was written survives the process; should the machine
    die, the history is made again from the store.
    """

    def __init__(self, path: Path) -> None:
        self._journal, self._exclusion = path, JournalFileOpenLock(str(path))
        super().__init__(str(path), self._exclusion)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        self._exclusion.acquire()
        try:
            with self._journal.open("ab") as file:
                file.write(lines.encode())
        finally:
            self._exclusion.release()


def _mend(journal: Path) -> None:
    """Cuts off the line that a killed writer left unfinished: the next one would be appended to it."""
    if not journal.exists():
        return
    with journal.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1_000_000))
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
