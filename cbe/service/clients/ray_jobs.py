"""A Ray cluster without a service: studies are Ray Jobs, and are read from their store if it is in reach.

A job's metadata tells where its study's store is, whose it is and what its file says.
"""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from urllib.parse import urlsplit

import yaml

from cbe.errors import ConfigError, InputError
from cbe.service.auth.loopback import is_loopback
from cbe.service.clients.interface import command_at, require_no_file
from cbe.service.clients.local import LocalStudies
from cbe.service.live.study_status import StudyStatus
from cbe.service.queue.ray_jobs import HERE, STORE, Job, Jobs
from cbe.spec import StudyConfig
from cbe.spec.changes import differences
from cbe.spec.files import read_config_text, read_setting, text_to_send
from cbe.store.folder import STUDY_FILE, Store
from cbe.store.states import status
from cbe.study.control import stop_was_asked
from cbe.study.lifecycle import differing, existing_differs
from cbe.study.overview import Details, Overview, details, followed, overview

if TYPE_CHECKING:
    import pyarrow as pa

    from cbe.report.best import Answer
    from cbe.service.trials import Trial

MOST_METADATA_BYTES = 60_000  # of a file: Ray hands a job's metadata on as a variable of the environment
_STATES = {"pending": "starting", "succeeded": "finished"}  # the others are called as Ray calls them


class RayJobsStudies:
    """The studies of a Ray cluster, driven by Ray Jobs alone."""

    begin: ClassVar[str] = "cbe submit FILE"

    def __init__(self, url: str) -> None:
        self.url = url
        self._jobs = Jobs(url)
        self._here = is_loopback(urlsplit(url).hostname or "")

    def command(self, verb: str, name: str) -> str:
        return command_at(self.url, verb, name)

    def local_folder(self, name: str) -> None:
        """None: the cluster's machines have their own files."""

    def submit(
        self,
        file: Path,
        priority: int = 0,
        *,
        settings: Sequence[str] = (),
        store: str | None = None,
        code: Path | None = None,
    ) -> StudyStatus:
        """Starts a study's driver on the cluster; the same file again is the same study."""
        study = read_config_text(
            StudyConfig, text_to_send(StudyConfig, file, settings, same_machine=self._here)
        )
        place = self._place(store or os.environ.get("CBE_STORE") or study.storage.store, "--store")
        if study.data.path and not self._here:
            self._place(study.data.path, "data.path")
        if priority:
            raise InputError("--priority: a Ray cluster without a CBE service has no queue; leave it out")
        last = self._jobs.find(study.name)
        if last is not None and not self._never_began(last):
            self._same(study, last)
            if last.about.get(STORE) != place:
                raise InputError(
                    f"{study.name}: was submitted before, with the store {last.about.get(STORE)}; give "
                    f"--store {last.about.get(STORE)}, or choose another name"
                )
            return self._study_status(last)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, STUDY_FILE).write_text(_to_yaml(study), "utf-8")
            command = [*self._python, "-m", "cbe", "run", f"{HERE}/{STUDY_FILE}", "--resume"]
            self._jobs.submit(
                study.name,
                [*command, "--store", place, "--address", "auto"],
                {STORE: place, "cbe_owner": _user(), **_digest_of(study)},
                folder=Path.cwd() if self._here else None,
                files=Path(folder),
                code=code,
            )
        return self._study_status(self._known(study.name))

    def ls(
        self, *, state: str | None = None, owner: str | None = None, search: str | None = None
    ) -> list[StudyStatus]:
        latest = {job.study: job for job in self._jobs.all().values()}
        found = [self._study_status(job) for _, job in sorted(latest.items())]
        return [each for each in found if each.matches(state, owner, search)]

    def show(self, name: str) -> Details:
        job = self._known(name)
        store = self._store(job)
        if store is None:
            return Details(self._study_status(job).overview, (), "")
        return replace(details(store, name), overview=self._study_status(job).overview)

    def watch(self, name: str) -> Iterator[Details]:
        return followed(partial(self.show, name))

    def trial(self, name: str, trial: str) -> Trial:
        return self._read(name, "show STUDY/TRIAL").trial(name, trial)

    def best(self, name: str, k: int = 1, where: str | None = None) -> Answer:
        return self._read(name, "best").best(name, k, where)

    def best_of_all(self, k: int = 1, where: str | None = None) -> NoReturn:
        raise self._cannot("best of all studies")

    def sql(self, query: str, study: str | None = None) -> pa.Table:
        if study is None:
            raise self._cannot("query over all studies")
        return self._read(study, "query").sql(query, study)

    def report(self, name: str) -> str:
        return self._read(name, "report").report(name)

    def delete(self, name: str) -> NoReturn:
        self._known(name)
        raise self._cannot("delete")

    def logs(self, name: str, follow: bool = False) -> Iterator[str]:
        self._known(name)
        if not follow:
            yield from self._jobs.logs(name).splitlines()
            return
        with asyncio.Runner() as runner:
            parts = self._jobs.follow(name)
            with suppress(StopAsyncIteration):
                while True:
                    yield from runner.run(anext(parts)).splitlines()  # type: ignore[arg-type]

    def stop(self, name: str) -> StudyStatus:
        """In order where the store is in reach; otherwise by a signal, which does the same in a hurry."""
        job = self._known(name)
        store = self._store(job)
        if store is not None and status(store.study(name)).alive:
            return replace(self._study_status(job), overview=LocalStudies(store).stop(name).overview)
        if job.active:
            self._jobs.stop(name)
        else:
            raise InputError(f"{name}: is not running; there is nothing to stop")
        return self._study_status(self._known(name))

    def resume(self, name: str, changes: Sequence[str] = (), *, file: Path | None = None) -> StudyStatus:
        require_no_file(self.url, file)
        for each in changes:
            read_setting(each)  # which refuses what is none, as the driver would much later
        job = self._known(name)
        if job.active and self._ends(job):
            raise InputError(f"{name}: its driver is just ending; try again in some seconds")
        if not job.active:
            more = [part for each in changes for part in ("--set", each)]
            command = [*self._python, "-m", "cbe", "resume", name, *more]
            self._jobs.submit(
                name,
                [*command, "--store", job.about[STORE], "--address", "auto"],
                {key: value for key, value in job.about.items() if key.startswith("cbe_")},
                folder=Path.cwd() if self._here else None,
            )
        elif changes:
            raise InputError(f"{name}: is running; stop it first")
        return self._study_status(self._known(name))

    @property
    def _python(self) -> list[str]:
        """A cluster on this machine has this very installation; another has its own on its path."""
        return [sys.executable if self._here else "python"]

    def _ends(self, job: Job) -> bool:
        """Whether a driver that still runs was asked to stop, or has said that it does."""
        store = self._store(job)
        if store is None:
            return False
        folder = store.study(job.study)
        said, since = status(folder), job.started.timestamp() if job.started else 0.0
        over = said.over and float(said.plain.get("beat", 0)) > since
        return over or stop_was_asked(folder)

    def _never_began(self, job: Job) -> bool:
        """Whether a driver failed and left nothing, as where its bucket is not there: it is tried anew."""
        return job.status == "failed" and self._store(job) is None

    def _place(self, given: str, what: str) -> str:
        """An address that means the same on the cluster as here."""
        if "://" in given or (Path(given).is_absolute() and not self._here):
            return given
        if self._here:
            return str(Path(given).expanduser().resolve())
        raise InputError(
            f"{what} {given}: is another folder on the cluster's machines; give a bucket, as "
            "s3://bucket/prefix, or the absolute path of a folder that all of them share"
        )

    def _known(self, name: str) -> Job:
        job = self._jobs.find(name)
        if job is None:
            raise InputError(
                f"study {name}: the cluster at {self.url} knows of none; see `cbe ls --address "
                f"{self.url}`, or read its store with --store"
            )
        return job

    def _read(self, name: str, verb: str) -> LocalStudies:
        """The store of a study, which has the answers."""
        store = self._store(self._known(name))
        if store is None:
            raise self._cannot(verb)
        return LocalStudies(store)

    def _cannot(self, verb: str) -> InputError:
        return InputError(
            f"{self.url}: is a Ray cluster without a CBE service, which cannot tell `{verb}`; read the store "
            "with --store, or give the address of a service"
        )

    def _store(self, job: Job) -> Store | None:
        """The store of a study, if it can be read from here and has the study."""
        uri = job.about.get(STORE, "")
        if not uri or ("://" not in uri and not self._here):
            return None
        with suppress(InputError):
            store = Store.open(uri)
            if store.study(job.study).exists():
                return store
        return None

    def _study_status(self, job: Job) -> StudyStatus:
        store, owner = self._store(job), job.about.get("cbe_owner")
        if store is None:
            return StudyStatus(_seen_by_ray(job), owner, submitted=job.started)
        found = overview(store, job.study)
        if job.active and found.state != "running":
            found = replace(found, state="starting", reason=None)
        elif job.status == "failed" and found.state in ("new", "interrupted"):
            found = replace(found, state="failed", reason=found.reason or _seen_by_ray(job).reason)
        return StudyStatus(found, owner, submitted=job.started)

    def _same(self, study: StudyConfig, last: Job) -> None:
        """Refuses a file that differs from the one that its name stands for."""
        store = self._store(last)
        if store is not None:
            error = differing(study, store.study(study.name))
        elif last.about.get("cbe_digest") == _digest_of(study)["cbe_digest"]:
            error = None
        else:
            before = yaml.safe_load(last.about.get("cbe_file") or "{}")
            error = _unlike(study, before if isinstance(before, dict) else {}, last)
        if error is not None:
            raise error


def _unlike(study: StudyConfig, before: dict[str, Any], last: Job) -> ConfigError | None:
    found = [each for each in differences(before, study.to_plain()) if each.key != "storage.store"]
    return (
        existing_differs(f"study {last.study}", found, "choose another name, as with --set name=…")
        if found
        else None
    )


def _seen_by_ray(job: Job) -> Overview:
    lines = [line for line in job.message.strip().splitlines() if line.strip()]
    reason = lines[-1].strip() if lines and job.status == "failed" else None
    state = _STATES.get(job.status, job.status)
    said = {"study": job.study, "question": "", "state": state, "reason": reason}
    return Overview.from_plain({**said, "counts": {}, "spent": {}})


def _to_yaml(study: StudyConfig) -> str:
    return yaml.safe_dump(study.to_plain(), sort_keys=False)


def _digest_of(study: StudyConfig) -> dict[str, str]:
    """What a job's metadata keeps of a file: all of it where it is short, and in any case its digest."""
    plain = _to_yaml(study)
    digest = {"cbe_digest": hashlib.sha256(plain.encode()).hexdigest()}
    return digest | ({"cbe_file": plain} if len(plain) <= MOST_METADATA_BYTES else {})


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
