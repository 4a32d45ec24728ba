"""What happens in a trial's own process: train, keep a checkpoint, report, and say what went wrong."""

from __future__ import annotations

import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cbe.data import Dataset, open_dataset
from cbe.data.images import Pool, Stats
from cbe.errors import CbeError, CheckpointError, RunError
from cbe.nn.cost import cost
from cbe.nn.memory import memory
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.search import MUTABLE
from cbe.ssl import resolve
from cbe.ssl.world import World
from cbe.store.epochs import EpochWriter
from cbe.store.folder import Store, StudyFolder
from cbe.study.assignment import Assignment
from cbe.study.periodic import outlast
from cbe.study.trial.log import logged
from cbe.training.loop import Snapshot, train

Metrics = dict[str, Any]
# Sends one report, with the checkpoint that goes with it, to the process that started the trial.
Send = Callable[[Metrics, str | None], None]

KEEP_S = 10.0  # a checkpoint younger than this is kept: the report that goes with a newer one may yet be lost


@dataclass(frozen=True)
class Shared:
    """What all trials of a study have in common; the images lie in shared memory, once a node."""

    study: StudyConfig
    store: str
    pool: Pool
    stats: Stats
    epoch: int = 0  # of the driver
    leave: Callable[[], bool] = lambda: False  # whether this process must be left; a trial's own

    def dataset(self, config: TrainConfig) -> Dataset:
        """The images with this config's split; read anew where the search is over other images."""
        same = ("source", "path", "root", "size", "channels")
        if all(getattr(config.data, key) == getattr(self.study.data, key) for key in same):
            return open_dataset(config.data, pool=(self.pool, self.stats))
        return open_dataset(config.data)

    def memory(self, assignment: Assignment) -> int:
        """The bytes of a card that a trial takes at most."""
        config, (_, channels, size, _) = resolve(assignment.config(self.study)), self.pool.train.images.shape
        return memory(config, classes=len(self.pool.classes), channels=channels, size=size)


def work(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Trains one assignment from the start or from a checkpoint; the same in one process and in several."""
    folder = Store.open(shared.store).study(shared.study.name)
    with logged(folder, assignment.trial) if world.rank == 0 else nullcontext() as log:
        use_resources(shared.study)
        config = resolve(assignment.config(shared.study))
        data = shared.dataset(config)
        # A population may go back to any of them.
        keep_all = shared.study.scheduler.name == "pbt"
        checkpoints = Checkpoints(folder, assignment.trial, shared.epoch, keep_all)
        about = {**_about(config, data), "split": data.split.digest}
        if log:
            begins = f"goes on after step {int(Path(resume).stem)}" if resume else "begins"
            log.say(f"{begins}, on {about['device']} of {about['node']}")

        def report(metrics: Metrics, snapshot: Snapshot) -> None:
            if log is None:  # one of several workers speaks for all
                send({}, None)
                return
            # The checkpoint first: a report that arrives names one that exists.
            kept = checkpoints.save(snapshot)
            log.evaluated(metrics, config.training.steps)
            log.keep()
            send({**metrics, **about, "checkpoint": kept}, kept)

        changed = MUTABLE if resume else ()
        with checkpoints.fetched(resume) as path:
            train(config, data, report, resume_from=path, changed=changed, leave=shared.leave, world=world)


def use_resources(study: StudyConfig) -> None:
    """As many threads as the trial has cores, and its share of the card."""
    torch.set_num_threads(study.resources.threads)
    share = study.resources.gpus
    if torch.cuda.is_available() and share is not None and 0 < share < 1:
        torch.cuda.set_per_process_memory_fraction(share)


def _about(config: TrainConfig, data: Dataset) -> Metrics:
    channels, size = data.labeled.shape[1:3]
    counted = cost(config, classes=len(data.classes), channels=channels, size=size)
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "parameters": counted.parameters,
        "macs": counted.macs,
        "device": on,
        "node": socket.gethostname(),
    }


class Checkpoints:
    """A trial's checkpoints: checkpoints/TRIAL/EPOCH/STEP.pt in the study's folder, the newest few.

    Where the store does not answer, or the disk is full, the training waits for as long as the driver lives.
    """

    def __init__(self, folder: StudyFolder, trial: str, epoch: int = 0, keep_all: bool = False) -> None:
        self._folder, self._trial, self._keep_all = folder, trial, keep_all
        self._writer = EpochWriter(folder, epoch)
        now, found = time.monotonic(), outlast(lambda: stored(folder, trial))
        self._saved = [(now, name) for _, name in found]  # by an earlier process

    def save(self, snapshot: Snapshot) -> str:
        name = f"checkpoints/{self._trial}/{self._writer.epoch}/{snapshot.step:09d}.pt"
        outlast(lambda: self._keep(name, snapshot))
        now = time.monotonic()
        self._saved = [(at, other) for at, other in self._saved if other != name] + [(now, name)]
        with suppress(RunError):  # what cannot be deleted now is with the next one
            while not self._keep_all and len(self._saved) > 2 and now - self._saved[1][0] > KEEP_S:
                self._folder.delete(self._saved[0][1])
                del self._saved[0]
        return name

    def _keep(self, name: str, snapshot: Snapshot) -> None:
        self._writer.check()  # else the driver is one that was taken for dead, and its trial runs elsewhere
        with tempfile.TemporaryDirectory() as aside:
            path = Path(aside) / "checkpoint.pt"
            snapshot.save(path)
            self._folder.write(name, path.read_bytes())

    @contextmanager
    def fetched(self, name: str | None) -> Iterator[Path | None]:
        """A checkpoint as a local file."""
        if name is None:
            yield None
            return
        content = outlast(lambda: self._folder.read(name))
        if content is None:
            raise CheckpointError(f"{self._folder.path(name)}: the checkpoint to go on from is gone")
        with tempfile.TemporaryDirectory() as aside:
            path = Path(aside) / "checkpoint.pt"
            path.write_bytes(content)
            yield path


def stored(folder: StudyFolder, trial: str, since: int = 0) -> list[tuple[int, str]]:
    """A trial's checkpoints in the order of steps, those of earlier epochs than one left out."""
    under = f"checkpoints/{trial}"
    names = [entry.name for entry in folder.location.at(under).entries(recursive=True, folders=False)]
    found = [(int(Path(name).stem), name) for name in names if re.fullmatch(r"\d+/\d+\.pt", name)]
    return sorted((step, f"{under}/{name}") for step, name in found if int(Path(name).parent.name) >= since)


def newest(folder: StudyFolder, trial: str, recorded: int, interval: int, since: int = 0) -> str | None:
    """The trial's last checkpoint before the evaluation that follows the last one recorded.

    What lies between is trained again, to the same numbers, so that the curve has neither gap nor repeat.
    `since` is the epoch in which the trial began: an earlier driver that was lost before it had recorded the
    name may have given it to another config.
    """
    usable = [
        name for step, name in stored(folder, trial, since) if step < (recorded // interval + 1) * interval
    ]
    return usable[-1] if usable else None


def failure(error: Exception) -> Mapping[str, str]:
    """The class and text of what ended a trial, as they are recorded."""
    text = str(error).strip() or type(error).__name__
    kind = type(error).__name__
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text:
        kind = "OutOfMemory"
    return {"error_class": kind, "error_text": text[:4000]}


def is_worth_a_retry(error: Exception) -> bool:
    """Whether the same trial may well succeed when it is tried again."""
    return isinstance(error, CbeError) and error.retry
