"""A copy of the sampler's history for `optuna-dashboard`: a journal file, or any Optuna storage.

Nothing is ever decided by it. A thread of its own writes it, so that one that is slow, full or away costs the
study nothing: it is written as soon as it can be. One that is not the beginning of what the sampler knows, as
where another machine has driven the study since, is replaced.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial

from cbe.errors import InputError

RETRY_S = 10.0
CLOSE_S = 10.0  # that the end of a study waits for the rest
HOME = "home"  # the attribute of a study that names the store it is of


class Mirror:
    """Copies an Optuna study as it changes."""

    def __init__(
        self,
        url: str | None,
        journal: Path,
        home: str = "",
        failed: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """`home` is the study's address: another store may have one of its name, and the same database.

        `failed` is called from the thread when it begins to fail.
        """
        require_url(url)
        self._url, self._journal, self._home, self._failed = url, journal, home, failed
        self._changed: set[int] = set()
        self._lock = threading.Lock()  # of the above
        self._woken, self._closing = threading.Event(), threading.Event()
        self._copy: _Copy | None = None
        self._thread: threading.Thread | None = None
        self.problem: str | None = None

    def follow(self, study: optuna.Study) -> None:
        """Copies all that is there, and from now on every trial that `note` names."""
        self._study = study
        self.note(*range(len(study.get_trials(deepcopy=False))))
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def note(self, *numbers: int) -> None:
        """These trials are new, or have changed."""
        with self._lock:
            self._changed.update(numbers)
        self._woken.set()

    def close(self) -> None:
        """Writes the rest, if that takes no longer than a while."""
        self._closing.set()
        self._woken.set()
        if self._thread:
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            last = self._closing.is_set()
            try:
                self._write()
                self.problem = None
            except Exception as error:  # of a file, a database, a driver; the study has no part in it
                self._copy = None
                problem = (str(error).splitlines() or [repr(error)])[0]
                if self.problem is None and not self._closing.is_set():
                    self._failed(problem)
                self.problem = problem
                self._closing.wait(RETRY_S)
                self._woken.set()
            if last:
                return

    def _write(self) -> None:
        if self._copy is None:
            self._copy = self._open()
            with self._lock:
                self._changed.update(range(len(self._study.get_trials(deepcopy=False))))
        with self._lock:
            numbers, self._changed = sorted(self._changed), set()
        trials = self._study.get_trials(deepcopy=False)
        try:
            for number in numbers:
                self._copy.bring(trials[number])
        except BaseException:
            self.note(*numbers)
            raise

    def _open(self) -> _Copy:
        try:
            storage = open_storage(self._url, self._journal)
            known = optuna.get_all_study_summaries(storage)
        except Exception:
            if self._url is None:
                self._journal.unlink(missing_ok=True)  # damaged: the next try begins it anew
            raise
        own = [
            each._study_id
            for each in known
            if _is_called(each.study_name, self._study.study_name) and each.user_attrs.get(HOME) == self._home
        ]
        trials = self._study.get_trials(deepcopy=False)
        for number in own:
            there = storage.get_all_trials(number, deepcopy=False)
            same = storage.get_study_directions(number) == self._study.directions
            if same and _is_beginning(there, trials) and number == own[-1]:
                return _Copy(storage, number, there)
            storage.delete_study(number)
        taken = set(optuna.get_all_study_names(storage))
        return _Copy(storage, self._create(storage, taken), [])

    def _create(self, storage: BaseStorage, taken: Iterable[str]) -> int:
        name = self._study.study_name
        names = [name, *(f"{name} ({n})" for n in range(2, len(set(taken)) + 3))]
        free = next(each for each in names if each not in taken)
        made = optuna.create_study(study_name=free, storage=storage, directions=self._study.directions)
        for key, value in {**self._study.user_attrs, HOME: self._home}.items():
            made.set_user_attr(key, value)
        return made._study_id


class _Copy:
    """One study of a storage, and what was written of the trials that have not ended."""

    def __init__(self, storage: BaseStorage, study: int, there: Sequence[FrozenTrial]) -> None:
        self._storage, self._study = storage, study
        self._ids = [trial._trial_id for trial in there]
        self._open = {trial.number: trial for trial in there if not trial.state.is_finished()}

    def bring(self, trial: FrozenTrial) -> None:
        """Brings a trial up to date; new ones come in their order."""
        number = trial.number
        if number == len(self._ids):
            self._ids.append(self._storage.create_new_trial(self._study, template_trial=trial))
        elif number in self._open:
            self._update(self._ids[number], self._open[number], trial)
        else:
            return
        self._open[number] = trial
        if trial.state.is_finished():
            del self._open[number]

    def _update(self, id: int, before: FrozenTrial, now: FrozenTrial) -> None:
        storage = self._storage
        for key in now.params.keys() - before.params.keys():
            kind = now.distributions[key]
            storage.set_trial_param(id, key, kind.to_internal_repr(now.params[key]), kind)
        for step in now.intermediate_values.keys() - before.intermediate_values.keys():
            storage.set_trial_intermediate_value(id, step, now.intermediate_values[step])
        for key, value in now.user_attrs.items() - before.user_attrs.items():
            storage.set_trial_user_attr(id, key, value)
        for key, value in now.system_attrs.items():
            if before.system_attrs.get(key) != value:
                storage.set_trial_system_attr(id, key, value)
        if now.state != before.state:
            storage.set_trial_state_values(id, now.state, now.values)


def _is_called(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted} (")


def _is_beginning(there: Sequence[FrozenTrial], ours: Sequence[FrozenTrial]) -> bool:
    """Whether a copy has nothing that is not in the history."""
    return len(there) <= len(ours) and all(
        one.params == other.params
        and one.user_attrs.get("trial") == other.user_attrs.get("trial")
        and one.intermediate_values.keys() <= other.intermediate_values.keys()
        and (not one.state.is_finished() or (one.state, one.values) == (other.state, other.values))
        for one, other in zip(there, ours, strict=False)
    )


def require_url(url: str | None) -> None:
    """Refuses an address that no Optuna storage can have; whether it answers is not asked."""
    if url is None:
        return
    try:
        sqlalchemy.create_engine(url).dispose()
    except Exception as error:  # SQLAlchemy and its drivers raise errors of their own
        reason = str(error).splitlines()[0]
        raise InputError(
            f"storage.optuna: cannot be opened ({reason}); give an Optuna storage URL, as sqlite:///optuna.db"
        ) from None


def open_storage(url: str | None, journal: Path) -> BaseStorage:
    """Optuna's storage at a URL, or else a journal file."""
    if url is not None:
        return optuna.storages.RDBStorage(url)
    journal.parent.mkdir(parents=True, exist_ok=True)
    _mend(journal)
    return JournalStorage(Journal(journal))


class Journal(JournalFileBackend):
    """Optuna's journal file, written without waiting for the disk.

    A trial of ten reports writes it nineteen times. What was written survives the process.
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
