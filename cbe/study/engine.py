"""A study from its first trial to its confirmation, on Ray Tune."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray
import torch
from ray import tune

from cbe.data import Pool, Stats, facts_of, open_dataset, open_pool
from cbe.data import digest as digest_of
from cbe.errors import CbeError, DataError, Paused, RunError, Superseded
from cbe.spec import StudyConfig
from cbe.ssl.world import World
from cbe.store.folder import DATA_FILE, Store, StudyFolder
from cbe.store.recorder import Recorder
from cbe.store.rows import pair_of
from cbe.study.agenda import Agenda
from cbe.study.assignment import Assignment
from cbe.study.budget.guard import BudgetGuard
from cbe.study.control import Claim
from cbe.study.dispatch import Dispatch, Halt, Listener
from cbe.study.ledger import Ledger, Reports
from cbe.study.lifecycle import journal
from cbe.study.overview import settle
from cbe.study.progress import Progress, Watch
from cbe.study.retry import retry
from cbe.study.scaling import cluster
from cbe.study.scaling.watch import Scaling
from cbe.study.search.earlier_studies import find
from cbe.study.search.mirror import Mirror
from cbe.study.search.sampling import Sampling
from cbe.study.search.scheduling import Curve, scheduler
from cbe.study.search.transfer import learned
from cbe.study.trial.process import Shared, failure, is_worth_a_retry, work
from cbe.study.trial.reuse import reusable_runs
from cbe.study.trial.stop_signal import StopSignal, listener
from cbe.training.launch import Send, Workers, launch

RETRIES = 3  # of a trial whose process or node was lost
SCRATCH = ".ray"
LOOK_S = 1.0  # between looks at the clock
COUNT_S = 0.05  # between looks at the budget, which adds up all trials
LEAVE_S = 30.0  # that trials have to keep a checkpoint when the study halts

Body = Callable[[Shared, Assignment, str | None, Send, World], None]


def run(
    study: StudyConfig,
    store: Store,
    *,
    watch: Watch | None = None,
    address: str | None = None,
    body: Body = work,
) -> Progress:
    """Runs a study, or goes on with it: what the store has of it is kept and not run again.

    Once the trials run, nothing waits for the store: threads of the recorder and of the claim write to it and
    read from it, and outlast that it does not answer. What Ray Tune asks is answered from memory.
    """
    folder = store.study(study.name)
    with Claim(folder) as claim, cluster.connected(study, address) as embedded:
        with (
            closing(Recorder(folder, writer=claim.writer)) as recorder,
            closing(StopSignal()) as stop_signal,
            ExitStack() as closers,
        ):
            recorder.load()
            retry(recorder)
            claim.outage = recorder.outage
            capacity = cluster.capacity(study, cluster.size(embedded))
            cluster.require_shared(study, store, capacity)
            mirror = closers.enter_context(closing(_mirror(study, folder, recorder)))
            sampling = _sampling(study, store, recorder, mirror)
            ledger = Ledger(study, recorder, sampling, capacity.gpus * study.resources.workers)
            scaling = None if capacity.alone else Scaling(ledger, capacity, stop_signal)
            budget_guard = BudgetGuard(ledger, scaling, lambda: progress.elapsed_s, capacity.concurrent)
            agenda = Agenda(study, folder, ledger, budget_guard)
            progress = Progress(ledger, agenda, capacity.concurrent, claim.elapsed_s)
            with claim.beating(progress), watch(progress) if watch else nullcontext(), _interruptible(ledger):
                pool, stats = open_pool(study.data, progress.say)
                digest = digest_of(pool, stats)
                _describe(study, folder, (pool, stats), digest)
                ledger.reusable = reusable_runs(study, store, digest, _device(capacity))
                _ = agenda.images  # read before Tune asks for it
                shared = Shared(study, store.uri, pool, stats, claim.writer.epoch)
                limits = _Limits(claim, progress, budget_guard, stop_signal)
                with scaling.watching() if scaling else nullcontext(), _scratch(folder, capacity) as scratch:
                    _tune(folder, scratch, progress, capacity, shared, body, limits)
                if lost := limits.superseded:
                    raise lost
                ledger.settle()
                _outlasted(recorder)
                if progress.stage == "finished":
                    ledger.is_over = True
                    recorder.finish()
        claim.end(progress)
    with suppress(CbeError):  # the study is over; whoever lists the store notes it
        settle(store, study.name)
    if ledger.broken:
        raise RunError(f"{study.name}: {ledger.broken}; remove the cause, then `cbe resume {study.name}`")
    return progress


def _mirror(study: StudyConfig, folder: StudyFolder, recorder: Recorder) -> Mirror:
    """Where `optuna-dashboard` looks; that it cannot be written is worth an event, and no more."""

    def failed(problem: str) -> None:
        recorder.event("mirror_failed", error=problem)

    return Mirror(study.storage.optuna, journal(folder), folder.uri, failed)


def _sampling(study: StudyConfig, store: Store, recorder: Recorder, mirror: Mirror) -> Sampling:
    """The sampler's history, made from the store."""
    given = learned(study, recorder.folder, lambda: find(study, store))
    if study.search_from and not recorder.rows:
        recorder.event("learned", **given.to_plain())
    return Sampling(study, recorder, given, mirror)


@contextmanager
def _scratch(folder: StudyFolder, capacity: cluster.Capacity) -> Iterator[str]:
    """Where Tune keeps its own state, for a restore that is never done.

    Several machines need a place that all of them see, and that is the store. One alone does not, and then
    Tune asks nothing of a store that may not answer.
    """
    if capacity.alone:
        with tempfile.TemporaryDirectory(prefix="cbe-", ignore_cleanup_errors=True) as scratch:
            yield scratch
        return
    yield folder.path(SCRATCH)
    with suppress(RunError):
        folder.delete(SCRATCH)


def _outlasted(recorder: Recorder) -> None:
    """Waits where the store does not answer at the end: what is in memory only would be lost."""
    recorder.flush()
    while recorder.outage.why and not recorder.superseded:
        time.sleep(COUNT_S)


def _device(capacity: cluster.Capacity) -> str | None:
    """What trials run on, as far as this process can see it."""
    if not capacity.gpus:
        return "cpu"
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _describe(study: StudyConfig, folder: StudyFolder, pool: tuple[Pool, Stats], digest: str) -> None:
    """Stores what the data hold, for reports; where no split can be drawn, the trials tell why."""
    config = study.train_config({}, *study.pairs[0])
    with suppress(DataError):
        facts = facts_of(open_dataset(config.data, pool=pool), config)
        plain = {**facts.to_plain(), "digest": digest}
        folder.write(DATA_FILE, json.dumps(plain, indent=1).encode())


def _tune(
    folder: StudyFolder,
    scratch: str,
    progress: Progress,
    capacity: cluster.Capacity,
    shared: Shared,
    body: Body,
    limits: _Limits,
) -> None:
    ledger, study = progress.ledger, shared.study
    workers = Workers(capacity.workers, capacity.cpus, capacity.gpus, retries=RETRIES, storage=scratch)
    job = _Job([ray.put(shared)], body, workers, limits.stop_signal.broadcaster, capacity)
    judge = scheduler(study, _curves(ledger))
    ledger.on_reuse = lambda trial, reports: judge.replay(study, _searched(ledger, trial, reports))
    tune.Tuner(
        tune.with_resources(tune.with_parameters(_trial, job=job), _resources(shared, capacity)),
        tune_config=tune.TuneConfig(
            search_alg=Dispatch(progress.agenda.following),
            scheduler=judge,
            num_samples=-1,
            max_concurrent_trials=capacity.concurrent,
            # A trial's own process stays warm for the next one; a worker group's cannot be kept.
            reuse_actors=capacity.workers == 1,
            trial_name_creator=lambda trial: trial.config["trial"],
            trial_dirname_creator=lambda trial: trial.config["trial"],
        ),
        run_config=tune.RunConfig(
            name=f"{study.name}-{time.time_ns()}",
            storage_path=scratch,
            callbacks=[Listener(ledger, study.scheduler.name)],
            stop=Halt(limits),
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
    broadcaster: Any
    capacity: cluster.Capacity


def _resources(shared: Shared, capacity: cluster.Capacity) -> Any:
    """What a trial asks for: by its config, where the cluster tells its cards apart."""
    if not capacity.cards:
        return cluster.resources(capacity, {})

    def of(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        card = _card(shared, capacity, Assignment.from_plain(config))
        return tune.PlacementGroupFactory([cluster.resources(capacity, card)])

    return of


def _card(shared: Shared, capacity: cluster.Capacity, assignment: Assignment) -> dict[str, float]:
    return cluster.card(capacity, shared.memory(assignment)) if capacity.cards else {}


@lru_cache(maxsize=1)
def _shared(reference: Any) -> Shared:
    """The study and its images, mapped once in a process that many trials use."""
    found: Shared = ray.get(reference)
    return found


def _trial(config: dict[str, Any], job: _Job) -> None:
    """The function Tune runs, in the trial's process."""
    name = tune.get_context().get_trial_name()  # its config may have become another trial's
    assignment = replace(Assignment.from_plain(config), trial=name)
    heard = listener(job.broadcaster)

    def train(resume: str | None, send: Send, world: World) -> None:
        shared = _shared(job.shared[0])
        if world.size == 1:  # several workers would have to agree on the step, which costs more than it saves
            shared = replace(shared, leave=lambda: heard.word is not None)
        try:
            job.body(shared, assignment, resume, send, world)
        except Paused:
            if heard.word == "move":  # to be started again, elsewhere
                raise

    def described(error: Exception) -> dict[str, Any] | None:
        return None if is_worth_a_retry(error) else dict(failure(error))

    card = _card(_shared(job.shared[0]), job.capacity, assignment) if job.capacity.workers > 1 else {}
    named = replace(job.workers, card=card, name=f"{name}-{time.time_ns()}")
    launch(train, named, assignment.resume, described)


class _Limits:
    """Whether the study must stop: its budget is spent, or somebody wishes it.

    Then every trial is told, and stops by itself once it has kept a checkpoint; those that do not within
    some time are stopped as they are. Where another driver has taken over they all are, at once.
    """

    def __init__(
        self, claim: Claim, progress: Progress, budget_guard: BudgetGuard, stop_signal: StopSignal
    ) -> None:
        self._claim, self._progress = claim, progress
        self._budget_guard, self.stop_signal = budget_guard, stop_signal
        self._looked = self._counted = self._told = 0.0

    @property
    def superseded(self) -> Superseded | None:
        return self._claim.superseded or self._progress.ledger.recorder.superseded

    def __call__(self) -> bool:
        ledger, now = self._progress.ledger, time.monotonic()
        if self.superseded:
            ledger.halt("another process has taken over")
            return True
        if ledger.stop_reason is None:
            self._look(ledger, now)
        if ledger.stop_reason is None:
            return False
        if not self._told:
            self._told = now
            self.stop_signal.halt()
        hears = ledger.study.resources.workers == 1
        return not (hears and ledger.busy) or now - self._told > LEAVE_S

    def _look(self, ledger: Ledger, now: float) -> None:
        if now - self._counted > COUNT_S:
            self._counted = now
            if spent := self._budget_guard.reached():
                ledger.halt(spent)
        if now - self._looked > LOOK_S:
            self._looked, limit = now, ledger.study.budget.wall_hours
            if limit is not None and self._progress.elapsed_s / 3600 >= limit:
                ledger.halt(f"budget.wall_hours of {limit:g} is spent")
            if self._claim.stop_asked:
                ledger.halt("it was asked to stop")


@contextmanager
def _interruptible(ledger: Ledger) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops the study in order; the second ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if ledger.is_over:
            return  # the study has finished, and needs a moment more to put its tables in order
        if ledger.stop_reason is not None:
            raise KeyboardInterrupt
        ledger.stop_reason = "interrupted"  # and no more: a handler may not wait for a lock

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _curves(ledger: Ledger) -> Iterator[Curve]:
    """What trials of the search had reported before the study went on, those that have not ended included."""
    metric = ledger.study.objectives[0].metric
    for row in ledger.in_role("search"):
        if curve := ledger.recorder.past.curve(row["trial"], metric):
            failed = row["state"] == "failed"
            yield Curve(row["trial"], curve.items(), pair_of(row), row["preset"], failed)


def _searched(ledger: Ledger, trial: str, reports: Reports) -> Iterator[Curve]:
    """The curve of a trial of the search that another study has run."""
    row, metric = ledger.rows[trial], ledger.study.objectives[0].metric
    if row["role"] == "search":
        objective = [(each["step"], each[metric]) for each in reports if each.get(metric) is not None]
        yield Curve(trial, objective, pair_of(row), row["preset"])
