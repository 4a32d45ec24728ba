"""One loop, two launchers: in the trial's own warm process, or on several workers under Ray Train.

A worker group takes about ten seconds to start, a warm process none: short trials on one worker do not pay
for what they do not use. The loop, its metrics and its checkpoints are the same.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import ray
import ray.train
import ray.tune
import torch.distributed as dist
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.constants import ENV_VARS_TO_PROPAGATE
from ray.util.queue import Empty, Queue

from cbe.errors import ConfigError, NonFiniteLoss, Paused, RunError
from cbe.ssl.world import World

Metrics = dict[str, Any]
Send = Callable[[Metrics, str | None], None]
# Trains from a checkpoint, if there is one, and reports through `send`.
Body = Callable[[str | None, Send, World], None]
# What ends a trial as its class of error and text; None for what a retry may mend.
Failure = Callable[[Exception], Metrics | None]

AGAIN_S = 2.0  # between tries to report

_POINTER = "pointer"  # Ray moves our checkpoint's name about; the checkpoint itself stays where it is


@dataclass(frozen=True)
class Workers:
    """The process groups a trial is spread over."""

    count: int = 1
    cpus: float = 1
    gpus: float = 0
    card: Mapping[str, float] = field(default_factory=dict)  # the kind of card, as a resource of Ray
    retries: int = 1
    storage: str = ""  # where Ray Train keeps its own files
    name: str = ""


def launch(body: Body, workers: Workers, resume: str | None, failure: Failure) -> None:
    """Runs a body inside a Ray Tune trial; Tune's own checkpoint of it comes before `resume`."""
    for name in ("ray.train", "ray.tune"):  # they tell of every checkpoint, in the trial's own log
        logging.getLogger(name).setLevel(logging.WARNING)
    resume = _pointed(ray.tune.get_checkpoint()) or resume
    if workers.count > 1:
        _spread(body, workers, resume, failure)
        return
    try:
        body(resume, _tell_tune, World())
    except Exception as error:
        _end(error, failure, _tell_tune)


def lost_its_machine(error: BaseException | None) -> bool:
    """Whether a process is gone because all of its machine is, or is about to be.

    Of a process that ended on a machine that lives Ray says why; one that cannot be reached has lost more.
    """
    if isinstance(error, RayTaskError):
        error = error.cause
    if isinstance(error, RayActorError):
        gone = isinstance(error, ActorUnavailableError) or "its node has died" in str(error)
        return gone or bool(error.preempted)
    return isinstance(error, Paused)


def _end(error: Exception, failure: Failure, send: Send) -> None:
    """An error that would come again ends the trial, and is no reason for Ray to try it again."""
    described = failure(error)
    if described is None:
        raise error
    send(described, None)


def _tell_tune(metrics: Metrics, checkpoint: str | None) -> None:
    _report(ray.tune, metrics, checkpoint)


def _report(ray_: Any, metrics: Metrics, checkpoint: str | None) -> None:
    """Reports to Ray Tune or to Ray Train, whichever is given; each has its own class of checkpoints."""
    if checkpoint is None:
        ray_.report(metrics)
        return
    with tempfile.TemporaryDirectory() as aside:
        (Path(aside) / _POINTER).write_text(checkpoint)
        while True:
            try:
                ray_.report(metrics, checkpoint=ray_.Checkpoint.from_directory(aside))
                return
            except OSError:  # where Ray keeps the pointer does not answer now; nothing was reported yet
                time.sleep(AGAIN_S)


def _pointed(checkpoint: Checkpoint | None) -> str | None:
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return (Path(folder) / _POINTER).read_text()


class _Bridge(UserCallback):
    """Brings what the workers report from Train's controller to the trial's process.

    Ray's own callback drops the checkpoint, without which Tune can neither pause nor exploit a trial.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def after_report(self, run_context: Any, metrics: list[Metrics], checkpoint: Checkpoint | None) -> None:
        self._queue.put((metrics[0], _pointed(checkpoint)))


def _spread(body: Body, workers: Workers, resume: str | None, failure: Failure) -> None:
    _name_the_cluster()
    queue = Queue(actor_options={"num_cpus": 0})

    def loop() -> None:
        def send(metrics: Metrics, checkpoint: str | None) -> None:
            _report(ray.train, metrics, checkpoint)

        try:
            body(_pointed(ray.train.get_checkpoint()) or resume, send, World(dist.group.WORLD))
        except (ConfigError, NonFiniteLoss) as error:  # all workers meet these at the same step
            _end(error, failure, send)

    trainer = TorchTrainer(
        loop,
        scaling_config=ScalingConfig(
            num_workers=workers.count,
            use_gpu=workers.gpus > 0,
            resources_per_worker={
                "CPU": workers.cpus,
                **({"GPU": workers.gpus} if workers.gpus else {}),
                **workers.card,
            },
        ),
        torch_config=TorchConfig(backend="nccl" if workers.gpus else "gloo"),
        run_config=RunConfig(
            name=workers.name,
            storage_path=workers.storage,
            callbacks=[_Bridge(queue)],  # type: ignore[list-item]  # its annotation is of Train V1
            failure_config=FailureConfig(max_failures=workers.retries),
        ),
    )
    fit = _Thread(trainer.fit)
    fit.start()
    while fit.is_alive() or not queue.empty():
        try:
            _tell_tune(*queue.get(timeout=0.2))
        except Empty:
            continue
    queue.shutdown()
    if fit.error is not None:
        cause = _first_cause(fit.error)
        if lost_its_machine(cause):
            raise Paused(str(cause)) from cause
        described = failure(cause)
        if described is None or not isinstance(cause, Exception):
            raise RunError(str(cause)) from cause
        ray.tune.report(described)


def _name_the_cluster() -> None:
    """Tells Train's own helpers which Ray is theirs.

    They look for one on the machine, and where there are several, the one that frees a stopped group's
    resources dies, so that the next group waits for ever. Train passes on only variables it knows by name.
    """
    ENV_VARS_TO_PROPAGATE.add("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address


class _Thread(threading.Thread):
    """A daemon that keeps the error it ended with."""

    def __init__(self, target: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = target
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.error = error


def _first_cause(error: Exception) -> Exception:
    """What a worker raised, out of the group's error."""
    failures = getattr(error, "worker_failures", None) or {}
    first = next(iter(failures.values()), error)
    return getattr(first, "cause", None) or first
