"""Ray Jobs: one job each time that a study is started, known by its metadata.

Its submission id, as quickstart@2, is new each time: a watcher of an ended Ray job would take the next of
the same id for it. Of two that start a study at once Ray refuses the second, whose id is the same.

The cluster's own token is Ray's matter: it is found where Ray looks for it (RAY_AUTH_TOKEN,
RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token) and is sent to the cluster alone.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # a token that is given is meant to be sent

# isort: split
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from cbe.errors import InputError, RunError

TIMEOUT_S = (5, 60)  # to be heard, and to be answered
HERE = "@here@"  # in a command: the folder of the files that were sent along
STORE = "cbe_store"
OURS = "cbe_study"  # metadata by which jobs that drive a study are known


class RayAway(RunError):
    """Nobody answers at the address, or Ray is too busy to."""

    retry = True


@dataclass(frozen=True)
class Job:
    """A study's driver as Ray knows it."""

    id: str
    study: str
    status: str  # pending, running, succeeded, stopped, failed
    message: str
    exit_code: int | None  # None while it runs, and where it was lost with its node
    started: datetime | None
    ended: datetime | None
    about: Mapping[str, str] = field(default_factory=dict)  # the metadata it was submitted with

    @property
    def active(self) -> bool:
        return self.status in ("pending", "running")

    @property
    def lost(self) -> bool:
        """Ended without anybody having seen how: its node is gone."""
        return self.status == "failed" and self.exit_code is None


class Jobs:
    """The drivers of studies on the cluster whose dashboard is at an address; of one store, where given."""

    def __init__(self, address: str, store: str | None = None) -> None:
        self.address, self._store = address, store

    @cached_property
    def _client(self) -> JobSubmissionClient:
        return _Client(self.address)

    def submit(
        self,
        study: str,
        command: Sequence[str],
        about: Mapping[str, str],
        *,
        id: str | None = None,
        folder: Path | None = None,
        files: Path | None = None,
        code: Path | None = None,
    ) -> str:
        """Starts a study's driver, or finds the one that runs, and says its job's id.

        What is left of an earlier one of the same study is forgotten. It works in `folder`, which must be on
        the head's machine, or else where the copy of `files` is, whose place is `HERE` in the command. `code`
        is a Python package that takes the place of the cluster's own.
        """
        environment: dict[str, Any] = {}
        if files is not None:
            environment["working_dir"] = str(files)
        if code is not None:
            environment["py_modules"] = [str(code)]
        entry = "exec " + shlex.join(command).replace(HERE, '"$here"')
        if folder is not None:
            entry = f"cd {shlex.quote(str(folder))} && {entry}"
        entry = f'here="$PWD"; {entry}' if files is not None else entry
        with self._own_errors():
            listed = self._known()
            known = self._of(study, listed)
            for job in known:
                if job.active:  # an answer was lost on its way, but the driver was started
                    return job.id
            told = {OURS: study, **({STORE: self._store} if self._store else {}), **about}
            started: str = self._client.submit_job(
                entrypoint=entry,
                submission_id=id or _next_id(study, listed),
                metadata=told,
                runtime_env=environment,
            )
            for job in known:
                self._client.delete_job(job.id)
            return started

    def find(self, study: str) -> Job | None:
        """A study's driver, the one that runs or else the latest; None where Ray knows of none."""
        with self._own_errors():
            return next(reversed(self._of(study)), None)

    def _of(self, study: str, listed: Sequence[Job] | None = None) -> list[Job]:
        """All that Ray knows of a study, the latest last, and one that runs after all that have ended."""
        jobs = self._known() if listed is None else listed
        found = [job for job in jobs if job.study == study and self._is_ours(job)]
        return sorted(found, key=lambda job: job.active)

    def _known(self) -> list[Job]:
        found = [_job(each) for each in self._client.list_jobs()]
        return sorted(found, key=lambda job: (job.started is not None, job.started, job.id))

    def _id(self, study: str) -> str:
        found = self._of(study)
        if not found:
            raise RuntimeError(f"no job of {study}")
        return found[-1].id

    def _is_ours(self, job: Job) -> bool:
        return OURS in job.about and self._store in (None, job.about.get(STORE))

    def all(self) -> dict[str, Job]:
        """The drivers that Ray knows of, by id, the latest of a study after its others."""
        with self._own_errors():
            found = self._known()
        self._active = sum(each.active and OURS in each.about for each in found)
        return {each.id: each for each in found if self._is_ours(each)}

    def active(self) -> int:
        """How many studies ran on the cluster when `all` was last asked, those of other stores included."""
        return self._active

    _active = 0

    def stop(self, study: str) -> None:
        """Ends a driver: a signal to stop in order, and after some seconds the end."""
        with self._own_errors():
            self._client.stop_job(self._id(study))

    def delete(self, study: str) -> None:
        """Forgets a driver that has ended."""
        with self._own_errors():
            for job in self._of(study):
                self._client.delete_job(job.id)

    def logs(self, study: str) -> str:
        """What a driver has printed so far."""
        with self._own_errors():
            return str(self._client.get_job_logs(self._id(study)))

    async def follow(self, study: str) -> AsyncIterator[str]:
        """What a driver has printed and prints, until it ends."""
        with self._own_errors():
            job = await asyncio.to_thread(self._id, study)  # which waits for Ray
            async for part in self._client.tail_job_logs(job):
                yield part

    def resources(self) -> dict[str, Any]:
        """The cluster's nodes, and what is used of what they have together."""
        with self._own_errors():
            nodes = self._get("/api/v0/nodes")["data"]["result"]["result"]
            usage = self._get("/api/cluster_status")["data"]["clusterStatus"]["loadMetricsReport"]["usage"]
        return {
            "nodes": [_node(each) for each in nodes],
            "used": {name: used for name, (used, _) in usage.items() if name in _KINDS},
            "total": {name: total for name, (_, total) in usage.items() if name in _KINDS},
        }

    def _get(self, path: str) -> Any:
        answer = self._client._do_request("GET", path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path}: HTTP {answer.status_code}")
        return answer.json()

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Ray's complaints as ours."""
        try:
            yield
        except AuthenticationError:
            raise InputError(
                f"{self.address}: the cluster wants its token; set RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN_PATH (or RAY_AUTH_TOKEN) to the one that it was started with"
            ) from None
        except (ConnectionError, OSError):
            raise RayAway(
                f"no Ray at {self.address}: nobody answers there; start one with `ray start --head`, or give "
                "the address of its dashboard"
            ) from None
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise RayAway(f"Ray at {self.address}: {_reason(error)}; try again") from None


class _Client(JobSubmissionClient):
    """Ray's client waits for ever for a dashboard that does not answer."""

    def _do_request(self, *given: Any, **more: Any) -> Any:
        return super()._do_request(*given, **{"timeout": TIMEOUT_S, **more})


_KINDS = ("CPU", "GPU", "memory", "object_store_memory")


def _job(details: JobDetails) -> Job:
    about = dict(details.metadata or {})
    return Job(
        id=details.submission_id or "",
        study=about.get(OURS, details.submission_id or ""),
        status=str(details.status.value).lower(),
        message=details.message or "",
        exit_code=details.driver_exit_code,
        started=_time(details.start_time),
        ended=_time(details.end_time),
        about=about,
    )


def unused(study: str) -> str:
    """An id that no job ever had."""
    return f"{study}@{datetime.now(UTC):%Y%m%dT%H%M%S%f}"


def _next_id(study: str, listed: Sequence[Job]) -> str:
    """The id after those that Ray lists, which another process that starts the study now has found, too.

    Ray notes the end of a job even after a deletion: then the id is taken, though its metadata is gone.
    """
    ids = (job.id.rpartition("@") for job in listed)
    numbers = (int(number) for name, _, number in ids if name == study and number.isdigit())
    return f"{study}@{1 + max(numbers, default=0)}"


def _node(plain: Mapping[str, Any]) -> dict[str, Any]:
    total = plain.get("resources_total") or {}
    return {
        "id": plain["node_id"],
        "ip": plain["node_ip"],
        "head": bool(plain.get("is_head_node")),
        "state": str(plain["state"]).lower(),
        "cpu": total.get("CPU", 0.0),
        "gpu": total.get("GPU", 0.0),
        "memory_gib": round(total.get("memory", 0.0) / 2**30, 1),
    }


def _time(millis: int | None) -> datetime | None:
    return datetime.fromtimestamp(millis / 1000, UTC) if millis else None


def _reason(error: Exception) -> str:
    """One line: Ray may answer with tracebacks, one in another, whose last line of text is the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" .")]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Traceback" in lines[0] else lines[0]
