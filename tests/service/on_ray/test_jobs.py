"""Ray Jobs as the service and the command line use them, on a real cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbe.processes import BackgroundProcess
from cbe.service.auth.audit import Audit
from cbe.service.queue import submissions
from cbe.service.queue.ray_jobs import Job, Jobs, RayAway, unused
from cbe.service.queue.reconciler import Reconciler
from cbe.service.queue.submissions import Submission
from cbe.store.folder import STUDY_FILE, Store
from tests.service.conftest import jobs_at, text_of
from tests.waiting import until

SLEEPS = ["sleep", "600"]


@pytest.fixture
def jobs(head: BackgroundProcess, tmp_path: Path) -> Iterator[Jobs]:
    """Those of a store of this test; what still runs of them ends with it."""
    found = jobs_at(head.address, str(tmp_path))
    yield found
    for job in found.all().values():
        if job.active:
            found.stop(job.study)


def ended(jobs: Jobs, study: str) -> Job:
    found: Job = until(lambda: (job := jobs.find(study)) and not job.active and job, what="its end")
    return found


def test_a_study_that_runs_is_not_started_twice_however_many_start_it_at_once(jobs: Jobs) -> None:
    def start() -> str | None:
        with suppress(RayAway):  # Ray refuses a second job of the same id
            return jobs.submit("twice", SLEEPS, {})
        return None

    with ThreadPoolExecutor(4) as pool:
        said = {each.result() for each in [pool.submit(start) for _ in range(4)]}
    assert said - {None} == {"twice@1"} == set(jobs.all())


def test_every_start_has_an_id_of_its_own_and_the_one_before_is_forgotten(jobs: Jobs) -> None:
    assert jobs.submit("again", ["true"], {}) == "again@1"
    assert ended(jobs, "again").status == "succeeded"
    assert jobs.submit("again", SLEEPS, {}) == "again@2"  # in the second in which the first has ended
    until(lambda: (job := jobs.find("again")) and job.status == "running", what="the second")
    assert set(jobs.all()) == {"again@2"}


def test_an_id_that_ray_knows_without_its_study_is_not_used_again(jobs: Jobs) -> None:
    """As of a study deleted right after its stop: Ray then notes the end of a job that it no longer has."""
    jobs._client.submit_job(entrypoint="true", submission_id="anew@1")
    assert jobs.submit("anew", SLEEPS, {}) == "anew@2"


def test_a_refusal_says_why(jobs: Jobs) -> None:
    jobs.submit("refused", ["true"], {}, id="refused@1")
    ended(jobs, "refused")
    with pytest.raises(RayAway, match="Job with submission_id refused@1 already exists"):
        jobs.submit("refused", ["true"], {}, id="refused@1")


@pytest.fixture
def reconciler(jobs: Jobs, tmp_path: Path) -> Callable[[Submission], Submission]:
    """Writes down a submission of `kept`, looks once, and gives what has become of it; nothing is started."""
    store = Store.open(str(tmp_path))
    made = Reconciler(store, jobs, Audit(store), lambda *_: None, limit=0)

    def look(submission: Submission) -> Submission:
        folder = store.study("kept")
        submissions.write(folder, submission)
        folder.write(STUDY_FILE, text_of("kept").encode())
        made.look()
        found = submissions.read(folder)
        assert found is not None
        return found

    return look


def test_a_start_that_never_reached_ray_is_not_settled_by_the_job_before_it(
    jobs: Jobs, reconciler: Callable[[Submission], Submission]
) -> None:
    jobs.submit("kept", [sys.executable, "-c", "raise SystemExit(3)"], {}, id=unused("kept"))
    assert ended(jobs, "kept").exit_code == 3
    now = datetime.now(UTC)
    started = Submission("ada", now, started=now, job=unused("kept"))
    found = reconciler(started)
    assert (found.wanted, found.started, found.losses, found.failed) == ("run", None, 1, None)


def test_the_job_of_a_start_settles_it(jobs: Jobs, reconciler: Callable[[Submission], Submission]) -> None:
    says = "print('token=abcdefgh is no good'); raise SystemExit(4)"
    job = jobs.submit("kept", [sys.executable, "-c", says], {}, id=unused("kept"))
    ended(jobs, "kept")
    now = datetime.now(UTC)
    found = reconciler(Submission("ada", now, started=now, job=job))
    assert (found.wanted, found.unsent) == ("rest", "failed")
    assert found.failed and "exit code 4" in found.failed and "abcdefgh" not in found.failed
    assert (
        reconciler(replace(found, wanted="run", started=None, job=None, failed=None)).started is None
    )  # waits
