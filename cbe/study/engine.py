"""A study from its first trial to its confirmation, on Ray Tune."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray
from ray import tune

from cbe.data import open_pool
from cbe.errors import RunError
from cbe.spec import StudyConfig
from cbe.ssl.world import World
from cbe.store.folder import Store, StudyFolder
from cbe.store.recorder import Recorder
from cbe.study import cluster
from cbe.study.agenda import Agenda
from cbe.study.assignment import Assignment
from cbe.study.control import Claim, stop_was_asked
from cbe.study.dispatch import Dispatch, Halt, Listener
from cbe.study.ledger import FINAL, Ledger
from cbe.study.progress import Progress, Watch
from cbe.study.sampling import Sampling, open_storage
from cbe.study.scheduling import scheduler
from cbe.study.start import journal
from cbe.study.trial import Shared, failure, is_worth_a_retry, work
from cbe.training.launch import Send, Workers, launch

RETRIES = 3  # of a trial whose process or node was lost
SCRATCH = ".ray"
LOOK_S = 1.0  # between looks for a wish to stop

Body = Callable[[Shared, Assignment, str | None, Send, World], None]


def run(
    study: StudyConfig,
    store: Store,
    *,
    watch: Watch | None = None,
    address: str | None = None,
    body: Body = work,
) -> Progress:
    """Runs a study, or goes on with it: what the store has of it is kept and not run again."""
    folder = store.study(study.name)
    with Claim(folder) as claim, cluster.connected(study, address):
        recorder = Recorder(folder)
        try:
            recorder.load()
            room = cluster.room(study)
            storage = open_storage(study.storage.optuna, journal(folder))
            sampling = Sampling(study, storage, recorder.rows, folder.uri)
            ledger = Ledger(study, recorder, sampling, room.gpus * study.resources.workers)
            progress = Progress(ledger, Agenda(study, folder, ledger), room.concurrent)
            with claim.beating(progress), watch(progress) if watch else nullcontext(), _interruptible(ledger):
                pool, stats = open_pool(study.data, progress.say)
                _tune(study, folder, progress, room, ray.put(Shared(study, store.uri, pool, stats)), body)
                ledger.settle()
                folder.delete(SCRATCH)  # Tune's own state, for a restore that is never done
        finally:
            recorder.close()
        claim.end(progress)
    if ledger.broken:
        raise RunError(f"{study.name}: {ledger.broken}; mend it and go on with `cbe resume {study.name}`")
    return progress


def _tune(
    study: StudyConfig,
    folder: StudyFolder,
    progress: Progress,
    room: cluster.Room,
    shared: Any,
    body: Body,
) -> None:
    ledger, wanted, scratch = progress.ledger, study.resources, folder.path(SCRATCH)
    workers = Workers(wanted.workers, wanted.cpus, room.gpus, RETRIES, scratch)
    trainable = tune.with_parameters(_trial, job=_Job([shared], body, workers))
    tune.Tuner(
        tune.with_resources(trainable, cluster.resources(study, room)),
        tune_config=tune.TuneConfig(
            search_alg=Dispatch(progress.agenda.following),
            scheduler=scheduler(study, _curves(folder, ledger)),
            num_samples=-1,
            max_concurrent_trials=room.concurrent,
            # A trial's own process stays warm for the next one; a worker group's cannot be kept.
            reuse_actors=wanted.workers == 1,
            trial_name_creator=lambda trial: trial.config["trial"],
            trial_dirname_creator=lambda trial: trial.config["trial"],
        ),
        run_config=tune.RunConfig(
            name=f"{study.name}-{time.time_ns()}",
            storage_path=scratch,
            callbacks=[Listener(ledger, study.scheduler.name)],
            stop=Halt(_Limits(study, folder, progress)),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            # A population may go back to any of them.
            checkpoint_config=tune.CheckpointConfig(num_to_keep=None if study.scheduler.name == "pbt" else 2),
            verbose=0,
        ),
    ).fit()


@dataclass(frozen=True)
class _Job:
    """What every trial of a run is given; the images only by reference."""

    shared: list[Any]
    body: Body
    workers: Workers


@lru_cache(maxsize=1)
def _shared(reference: Any) -> Shared:
    """The study and its images, mapped once in a process that many trials use."""
    found: Shared = ray.get(reference)
    return found


def _trial(config: dict[str, Any], job: _Job) -> None:
    """The function Tune runs, in the trial's process."""
    name = tune.get_context().get_trial_name()  # its config may have become another trial's
    assignment = replace(Assignment.from_plain(config), trial=name)

    def train(resume: str | None, send: Send, world: World) -> None:
        job.body(_shared(job.shared[0]), assignment, resume, send, world)

    def described(error: Exception) -> dict[str, Any] | None:
        return None if is_worth_a_retry(error) else dict(failure(error))

    named = replace(job.workers, name=f"{name}-{time.time_ns()}")
    launch(train, named, assignment.resume, described)


class _Limits:
    """Whether the study must stop: its budget is spent, or somebody wishes it."""

    def __init__(self, study: StudyConfig, folder: StudyFolder, progress: Progress) -> None:
        self._study, self._folder, self._progress = study, folder, progress
        self._looked = 0.0

    def __call__(self) -> bool:
        ledger = self._progress.ledger
        if ledger.halted is None and time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            for name, used in {**ledger.spent, "wall_hours": self._progress.elapsed_s / 3600}.items():
                limit = getattr(self._study.budget, name)
                if limit is not None and used >= limit:
                    ledger.halt(f"budget.{name} of {limit:g} is spent")
            if stop_was_asked(self._folder):
                ledger.halt("it was asked to stop")
        return ledger.halted is not None


@contextmanager
def _interruptible(ledger: Ledger) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops the study in order; the second ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if ledger.halted is not None:
            raise KeyboardInterrupt
        ledger.halted = "interrupted"  # and no more: a handler may not wait for a lock

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _curves(folder: StudyFolder, ledger: Ledger) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    """The objective over steps of the search trials that have ended."""
    metric = ledger.study.objectives[0].metric
    ended = {row["trial"] for row in ledger.in_role("search") if row["state"] in FINAL and row["step"]}
    if not ended:
        return
    found = folder.table("metrics", ["trial", "step", metric])
    in_order = found.sort_by([("trial", "ascending"), ("step", "ascending")]).to_pylist()
    for name, rows in groupby(in_order, key=lambda row: row["trial"]):
        if name in ended:
            yield name, [(row["step"], row[metric]) for row in rows if row[metric] is not None]
