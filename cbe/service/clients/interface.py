"""What can be asked of studies, wherever they are: in a store here, on a service, on a Ray cluster alone."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from cbe.errors import InputError
from cbe.service.live.study_status import StudyStatus
from cbe.store.folder import StudyFolder
from cbe.study.overview import Details

if TYPE_CHECKING:
    import pyarrow as pa

    from cbe.report.across import Task
    from cbe.report.best import Answer
    from cbe.service.trials import Trial


class Studies(Protocol):
    """The verbs of the command line. What a backend cannot do it refuses with an InputError."""

    begin: ClassVar[str]  # the command that begins a study here

    @property
    def url(self) -> str:
        """Where the studies are: the address of a store, a service or a cluster."""

    def command(self, verb: str, name: str) -> str:
        """The command that does something with a study or a trial of these, as it can be typed here."""

    def local_folder(self, name: str) -> StudyFolder | None:
        """The folder of a study whose driver works on this machine's files; None elsewhere."""

    def submit(
        self,
        file: Path,
        priority: int = 0,
        *,
        settings: Sequence[str] = (),
        store: str | None = None,
        code: Path | None = None,
    ) -> StudyStatus:
        """Has a study run, by its file and `key=value` settings over it.

        `store` and `code` are for a cluster alone; a service has its own.
        """

    def ls(
        self, *, state: str | None = None, owner: str | None = None, search: str | None = None
    ) -> Sequence[StudyStatus]:
        """The studies that are there, or those of a state, of an owner, or with a word in them."""

    def show(self, name: str) -> Details:
        """A study with all its trials."""

    def watch(self, name: str) -> Iterator[Details]:
        """A study as it goes on, until it goes on no longer."""

    def trial(self, name: str, trial: str) -> Trial:
        """One trial: what was recorded, its curve, its config, its log."""

    def logs(self, name: str, follow: bool = False) -> Iterator[str]:
        """The lines that a study's driver has printed; all that follow, too, until it ends."""

    def stop(self, name: str) -> StudyStatus:
        """Asks a study to stop; its results are kept."""

    def resume(self, name: str, changes: Sequence[str] = (), *, file: Path | None = None) -> StudyStatus:
        """Goes on with a study, with `key=value` changes or by an edited file."""

    def delete(self, name: str) -> None:
        """Removes a study with all its results; one that runs is refused."""

    def best(self, name: str, k: int = 1, where: str | None = None) -> Answer:
        """The k best configs of a study and how sure that is; `where` is a condition in SQL."""

    def best_of_all(self, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
        """The k best configs of all studies, for each set of images and labels."""

    def sql(self, query: str, study: str | None = None) -> pa.Table:
        """The answer to one SELECT over trials, metrics, confusions and events."""

    def report(self, name: str) -> str:
        """The study's report: one HTML file that opens offline."""


def command_at(url: str, verb: str, name: str) -> str:
    """The command for a study at an address, which need not be said where CBE_ADDRESS says it."""
    usual = os.environ.get("CBE_ADDRESS", "").rstrip("/")
    return f"cbe {verb} {name}" + ("" if url == usual else f" --address {shlex.quote(url)}")


def require_no_file(url: str, file: Path | None) -> None:
    """Refuses a study file from here where the driver has its own."""
    if file is not None:
        raise InputError(f"--file: {url} has the study's file; say what is to change with --set key=value")
