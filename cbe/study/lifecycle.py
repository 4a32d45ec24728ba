"""How a study begins, goes on and is deleted: its file in the store, and what may change of it in between."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from cbe.errors import ConfigError, Fault, InputError
from cbe.spec import StudyConfig, read_config
from cbe.spec.changes import FREE_IN_A_STUDY, Difference, differences, require_same
from cbe.spec.files import read_config_text
from cbe.spec.suggestions import did_you_mean
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.store.states import STATUS, status
from cbe.study.control import stop_was_asked
from cbe.study.search.earlier_studies import find

STOP_WAIT_S = 60.0  # a driver that stops gives its trials half a minute for their checkpoints
LOOK_S = 0.2
_OLDER = re.compile(r"study\.(\d+)\.yaml")


def begin(study: StudyConfig, store: Store) -> StudyConfig:
    """Puts a new study into the store; refuses a name that is taken."""
    folder = store.study(study.name)
    if folder.exists():
        raise taken(study, folder)
    find(study, store)  # refuses earlier studies that cannot guide this one
    with folder.changing():
        folder.write(STUDY_FILE, _encoded(study))
    return study


@contextmanager
def begun(study: StudyConfig, store: Store) -> Iterator[None]:
    """Begins a study; bad input or Ctrl-C before its first trial leave nothing behind."""
    begin(study, store)
    folder = store.study(study.name)
    try:
        yield
        if status(folder).plain.get("stop_reason") == "interrupted" and _is_empty(folder):
            raise KeyboardInterrupt  # which the driver took for a wish to stop in order
    except (InputError, KeyboardInterrupt):
        if _is_empty(folder) and not status(folder).alive:
            _remove(folder)
        raise


def _is_empty(folder: StudyFolder) -> bool:
    return not folder.list("trials") and not folder.list("checkpoints")


def load(store: Store, name: str) -> tuple[StudyConfig, StudyFolder]:
    """A study of the store as it was last started, and its folder."""
    folder = store.study(name)
    study = folder.config()
    if study is None:
        names = store.names()
        hint = did_you_mean(name, names) or "start one with `cbe run FILE`, or name another --store"
        raise InputError(f"{store.uri}: holds no study {name}; {hint}")
    return study, folder


def amend(
    folder: StudyFolder,
    *,
    file: Path | None = None,
    settings: Sequence[str] = (),
    free: Collection[str] = FREE_IN_A_STUDY,
) -> StudyConfig:
    """The study to go on with: as stored, or as edited where that leaves its trials comparable."""
    content = folder.read(STUDY_FILE) or b""
    if file is not None:
        study = read_config(StudyConfig, file, settings)
    else:
        name = folder.path(STUDY_FILE)
        study = read_config_text(
            StudyConfig, content.decode(), settings, name, folder=Path.cwd(), is_stored=True
        )
    if study.name != folder.name:
        raise InputError(
            f"{file or '--set name'}: is of study {study.name}, not {folder.name}; give {folder.name}'s own, "
            f"or begin {study.name} with `cbe run`"
        )
    return accept(folder, study, free)


def accept(folder: StudyFolder, study: StudyConfig, free: Collection[str] = FREE_IN_A_STUDY) -> StudyConfig:
    """Puts an edited study in the place of the stored one where that leaves its trials comparable."""
    content = folder.read(STUDY_FILE) or b""
    stored = read_config_text(StudyConfig, content.decode(), name=folder.path(STUDY_FILE), is_stored=True)
    require_same(
        stored.to_plain(),
        study.to_plain(),
        free=free,
        what="study",
        hint="trials of both could not be compared: begin a study of another name",
    )
    if changes(stored, study):
        _replace(folder, study)
    return study


def _replace(folder: StudyFolder, study: StudyConfig) -> None:
    last = status(folder)
    if last.alive:
        raise InputError(
            f"{folder.name}: is running, and its file is not changed meanwhile; stop it with "
            f"`cbe stop {folder.name}` first"
        )
    older = [_OLDER.fullmatch(entry.name) for entry in folder.location.entries()]
    number = 1 + max((int(found[1]) for found in older if found), default=0)
    with folder.changing():
        folder.write(f"study.{number}.yaml", folder.read(STUDY_FILE) or b"")
        # Before the file: what was finished may have more to do by the new one, whatever happens after this.
        reopen(folder, "its file was changed")
        folder.write(STUDY_FILE, _encoded(study))


def reopen(folder: StudyFolder, why: str) -> None:
    """Lets a study that was finished go on: it has more to do."""
    last = status(folder).plain
    if last:
        # Without its epoch: these are not the last words of the driver, which may be alive after all.
        told = {key: value for key, value in last.items() if key != "epoch"}
        stopped = {**told, "state": "stopped", "stop_reason": why}
        folder.write(STATUS, json.dumps(stopped, indent=1).encode())


def await_stop(folder: StudyFolder, say: Callable[[str], None], wait_s: float = STOP_WAIT_S) -> None:
    """Waits for a driver that was asked to stop; one that was not, or does not, is left to be refused."""
    if not (status(folder).alive and stop_was_asked(folder)):
        return
    say(f"{folder.name}: waits for its driver, which was asked to stop …")
    deadline = time.monotonic() + wait_s
    while status(folder).alive and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def delete(folder: StudyFolder) -> None:
    """Removes a study with all its results; one that runs is refused."""
    if status(folder).alive:
        raise InputError(f"{folder.name}: is running; stop it with `cbe stop {folder.name}` first")
    _remove(folder)


def _remove(folder: StudyFolder) -> None:
    folder.remove()
    journal(folder).unlink(missing_ok=True)


def taken(study: StudyConfig, folder: StudyFolder) -> InputError:
    """What there is to say to somebody whose study has the name of one that exists."""
    ahead = f"continue it with `cbe resume {folder.name}`"
    if status(folder).state == "finished":
        ahead = f"it is finished: see `cbe best {folder.name}`, or choose another name, e.g. --set name=…"
    return differing(study, folder) or InputError(f"{folder.uri}: exists already; {ahead}")


def differing(study: StudyConfig, folder: StudyFolder, where: str | None = None) -> ConfigError | None:
    """What differs from the study of the same name that is stored; None where they are the same.

    `where` is what the stored one is called, if not by its address.
    """
    stored = folder.config()
    found = changes(stored, study) if stored else []
    if not found:
        return None
    other = "choose another name, as with --set name=…"
    resume = f"go on by this file with `cbe resume {folder.name} --file FILE`, or {other}"
    hint = resume if all(each.among(FREE_IN_A_STUDY) for each in found) else other
    return existing_differs(where or folder.uri, found, hint)


def existing_differs(where: str, found: Sequence[Difference], hint: str) -> ConfigError:
    """The differences between a study that exists and another of its name, as faults."""
    return ConfigError(
        [
            Fault(where, "exists already, and differs", hint),
            *(Fault(each.key, f"stored is {each.before!r}, now it is {each.after!r}") for each in found),
        ]
    )


def changes(stored: StudyConfig, study: StudyConfig) -> list[Difference]:
    """All that differs but where the store is, which the folder itself says."""
    found = differences(stored.to_plain(), study.to_plain())
    return [each for each in found if each.key != "storage.store"]


def _encoded(study: StudyConfig) -> bytes:
    return yaml.safe_dump(study.to_plain(), sort_keys=False, allow_unicode=True).encode()


def journal(folder: StudyFolder) -> Path:
    """The sampler's history: beside the tables, or, where those are in a bucket, in the working directory."""
    if folder.location.local:
        return Path(folder.path("optuna.journal"))
    digest = hashlib.sha256(folder.uri.encode()).hexdigest()[:8]
    return Path("results") / f"{folder.name}-{digest}" / "optuna.journal"
