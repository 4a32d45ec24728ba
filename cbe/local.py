"""What `cbe.run` does: runs a study from Python, on this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from cbe.errors import InputError
from cbe.report.best import Answer
from cbe.report.results import Frames, Results, require_frames
from cbe.service.clients.local import LocalStudies
from cbe.spec import StudyConfig, read_config
from cbe.spec.files import read_values
from cbe.store.folder import Store
from cbe.study.lifecycle import differing

Study = str | PathLike[str] | Mapping[str, Any] | StudyConfig


@dataclass(frozen=True)
class StudyRun:
    """A study that `cbe.run` has run, and what it found."""

    study: str
    stop_reason: str | None  # None: it finished
    results: Results  # of the whole store

    def best(self, k: int = 1, where: str | None = None) -> Answer:
        """The k best configs and how sure that is, as `Results.best`."""
        return self.results.best(self.study, k, where)

    def trials(self) -> Any:
        """One row for each trial, as `Results.trials`."""
        return self.results.trials(self.study)

    def metrics(self) -> Any:
        """One row for each report of each trial, as `Results.metrics`."""
        return self.results.metrics(self.study)


def run(
    study: Study,
    store: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    address: str | None = None,
    frames: Frames = "arrow",
    show: bool = True,
) -> StudyRun:
    """Runs a study and returns its results, as `cbe run` does.

    `study` is the path of a study file, a dict with the same keys, or a StudyConfig. `store` is a folder or a
    bucket; the study's own `storage` if left out. A study that the store has already is refused, or continued
    with `resume=True`. `address` is that of a Ray cluster; without it the study runs on this machine. Ctrl-C
    stops the study in order; `stop_reason` then says so. Before the first trial, Ctrl-C raises
    KeyboardInterrupt, and the store keeps nothing of a new study. `show=False` prints no progress on stderr.

    >>> study = {"name": "first", "training": {"stepz": 100}}
    >>> run(study)
    Traceback (most recent call last):
      ...
    cbe.errors.ConfigError: training.stepz: unknown key; did you mean steps?
    """
    require_frames(frames)
    config = _config(study)
    place = Store.open(str(store or config.storage.store))
    folder = place.study(config.name)
    if folder.exists() and not resume:
        raise differing(config, folder) or InputError(
            f"{folder.uri}: exists already; continue it with resume=True, or choose another name or store"
        )
    from cbe.cli import backends

    studies = backends.local(place, address) if show else LocalStudies(place, address)
    ended = studies.run(config, resume=resume)
    return StudyRun(config.name, ended.overview.reason, Results(place, frames))


def _config(study: Study) -> StudyConfig:
    if isinstance(study, StudyConfig | Mapping):
        return read_values(StudyConfig, study.to_plain() if isinstance(study, StudyConfig) else study)
    return read_config(StudyConfig, Path(study))
