"""What can be asked of whoever runs studies elsewhere: a CBE service, or a Ray cluster alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from cbe.service.live.study_status import StudyStatus
from cbe.study.overview import Details


class Remote(Protocol):
    """The verbs of the command line, from afar. What one of them cannot do it refuses with an InputError."""

    def submit(
        self, text: str, priority: int = 0, *, store: str | None = None, code: Path | None = None
    ) -> StudyStatus:
        """Has a study run. `store` and `code` are for a cluster alone; a service has its own."""

    def ls(
        self, *, state: str | None = None, owner: str | None = None, search: str | None = None
    ) -> Sequence[StudyStatus]:
        """The studies that are there."""

    def show(self, name: str) -> Details:
        """A study with all its trials."""

    def logs(self, name: str, follow: bool = False) -> Iterator[str]:
        """The lines that a study's driver has printed; all that follow, too, until it ends."""

    def stop(self, name: str) -> StudyStatus:
        """Asks a study to stop; what it has done is kept."""

    def resume(self, name: str, **settings: Any) -> StudyStatus:
        """Goes on with a study where it was stopped."""
