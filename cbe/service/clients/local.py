"""The studies of a store: driven by this process, and read from their tables."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from cbe.errors import InputError
from cbe.service.live.study_status import StudyStatus
from cbe.spec import StudyConfig
from cbe.store.folder import DEFAULT, Store, StudyFolder
from cbe.store.states import status
from cbe.study import lifecycle
from cbe.study.control import ask_to_stop
from cbe.study.overview import Details, details, followed, overview, overviews
from cbe.study.retry import ask_to_retry, require_failed

if TYPE_CHECKING:
    import pyarrow as pa

    from cbe.report.across import Task
    from cbe.report.best import Answer
    from cbe.service.trials import Trial
    from cbe.study.progress import Watch

_NO_ADDRESS = "where? give --address http(s)://…, or set CBE_ADDRESS"


@dataclass(frozen=True)
class LocalStudies:
    """`run` and `resume` drive a study to its end, on this machine or on a Ray cluster."""

    store: Store
    address: str | None = None  # of a Ray cluster; None: Ray is started on this machine
    watch_driver: Watch | None = None  # shows a study while it is driven
    announce: Callable[[StudyConfig, bool], None] | None = None  # before that; True: it is new
    say: Callable[[str], None] = lambda text: None  # what it waits for

    begin: ClassVar[str] = "cbe run FILE"

    @property
    def url(self) -> str:
        return self.store.uri

    def command(self, verb: str, name: str) -> str:
        usual = Store.open(os.environ.get("CBE_STORE") or DEFAULT)
        named = "" if self.store.uri == usual.uri else f" --store {shlex.quote(self.store.uri)}"
        return f"cbe {verb} {name}{named}"

    def local_folder(self, name: str) -> StudyFolder | None:
        return self.store.study(name)

    def run(self, study: StudyConfig, *, resume: bool = False) -> StudyStatus:
        """Runs a new study; with `resume` also goes on with one that is there, by this config."""
        folder = self.store.study(study.name)
        if resume and folder.exists():
            return self._go_on(lifecycle.accept(folder, study))
        with lifecycle.begun(study, self.store):
            self._drive(study, new=True)
        return self._status(study.name)

    def submit(
        self,
        file: Path,
        priority: int = 0,
        *,
        settings: Sequence[str] = (),
        store: str | None = None,
        code: Path | None = None,
    ) -> NoReturn:
        raise InputError(f"submit: {_NO_ADDRESS}; `cbe run {file}` runs it here")

    def ls(
        self, *, state: str | None = None, owner: str | None = None, search: str | None = None
    ) -> list[StudyStatus]:
        found = map(StudyStatus, overviews(self.store))
        return [each for each in found if each.matches(state, owner, search)]

    def show(self, name: str) -> Details:
        return details(self.store, name)

    def watch(self, name: str) -> Iterator[Details]:
        return followed(partial(self.show, name))

    def trial(self, name: str, trial: str) -> Trial:
        from cbe.service.trials import trial as found

        return found(self.store, name, trial)

    def logs(self, name: str, follow: bool = False) -> NoReturn:
        raise InputError(
            f"logs: {_NO_ADDRESS}; what runs here prints where it was started; watch it with "
            f"`{self.command('show', name)} --watch`"
        )

    def stop(self, name: str) -> StudyStatus:
        _, folder = lifecycle.load(self.store, name)
        ask_to_stop(folder)
        return StudyStatus(replace(overview(self.store, name), state="stopping"))

    def resume(
        self,
        name: str,
        changes: Sequence[str] = (),
        *,
        file: Path | None = None,
        retry: Sequence[str] = (),
    ) -> StudyStatus:
        _, folder = lifecycle.load(self.store, name)
        lifecycle.await_stop(folder, self.say)
        if retry:
            require_failed(folder, retry)
            if status(folder).alive:
                raise InputError(f"{name}: is running; stop it with `cbe stop {name}` before you retry")
        study = lifecycle.amend(folder, file=file, settings=changes)
        ask_to_retry(folder, retry)
        return self._go_on(study)

    def delete(self, name: str) -> None:
        _, folder = lifecycle.load(self.store, name)
        lifecycle.delete(folder)

    # What follows loads its code only when it is asked: most commands need none of it.

    def best(self, name: str, k: int = 1, where: str | None = None) -> Answer:
        from cbe.report.best import best

        return best(self.store.study(name), k, where=where)

    def best_of_all(self, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
        from cbe.report.across import best_of_all

        return best_of_all(self.store, k, where)

    def sql(self, query: str, study: str | None = None) -> pa.Table:
        from cbe.report.results import Results

        return Results(self.store).sql(query, study)

    def report(self, name: str) -> str:
        from cbe.report.page.render import render

        return render(self.store.study(name), self.command("report", name))

    def _go_on(self, study: StudyConfig) -> StudyStatus:
        """Runs what is left of a study, if anything is."""
        if status(self.store.study(study.name)).state != "finished":
            self._drive(study, new=False)
        return self._status(study.name)

    def _drive(self, study: StudyConfig, *, new: bool) -> None:
        if self.announce:
            self.announce(study, new)
        from cbe.study.engine import run  # takes seconds

        run(study, self.store, watch=self.watch_driver, address=self.address)

    def _status(self, name: str) -> StudyStatus:
        return StudyStatus(overview(self.store, name))
