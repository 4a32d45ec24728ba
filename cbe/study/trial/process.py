"""What happens in a trial's own process: train, keep a checkpoint, report, and say what went wrong."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cbe.data import Dataset, open_dataset
from cbe.data.images import Pool, Stats
from cbe.errors import CbeError, CheckpointError
from cbe.nn.cost import cost
from cbe.nn.memory import memory
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.search import MUTABLE
from cbe.ssl import resolve
from cbe.ssl.world import World
from cbe.store.folder import Store, StudyFolder
from cbe.study.assignment import Assignment
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
        checkpoints = Checkpoints(folder, assignment.trial, keep_all=shared.study.scheduler.name == "pbt")
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
    """A trial's checkpoints: checkpoints/TRIAL/STEP.pt in the study's folder, the newest few."""

    def __init__(self, folder: StudyFolder, trial: str, keep_all: bool = False) -> None:
        self._folder, self._under, self._keep_all = folder, f"checkpoints/{trial}", keep_all
        now, names = time.monotonic(), sorted(folder.list(self._under))
        self._saved = [(now, f"{self._under}/{name}") for name in names]  # by an earlier process

    def save(self, snapshot: Snapshot) -> str:
        name = f"{self._under}/{snapshot.step:09d}.pt"
        with tempfile.TemporaryDirectory() as aside:
            path = Path(aside) / "checkpoint.pt"
            snapshot.save(path)
            with _worth_a_retry():
                self._folder.write(name, path.read_bytes())
        now = time.monotonic()
        self._saved = [(at, other) for at, other in self._saved if other != name] + [(now, name)]
        while not self._keep_all and len(self._saved) > 2 and now - self._saved[1][0] > KEEP_S:
            self._folder.delete(self._saved.pop(0)[1])
        return name

    @contextmanager
    def fetched(self, name: str | None) -> Iterator[Path | None]:
        """A checkpoint as a local file."""
        if name is None:
            yield None
            return
        with _worth_a_retry():
            content = self._folder.read(name)
        if content is None:
            raise CheckpointError(f"{self._folder.path(name)}: the checkpoint to go on from is gone")
        with tempfile.TemporaryDirectory() as aside:
            path = Path(aside) / "checkpoint.pt"
            path.write_bytes(content)
            yield path


@contextmanager
def _worth_a_retry() -> Iterator[None]:
    """A store that cannot be reached now may be reached when Ray tries the trial again."""
    try:
        yield
    except CbeError as error:
        raise CheckpointError(str(error), retry=True) from error


def newest(folder: StudyFolder, trial: str, recorded: int, interval: int) -> str | None:
    """The trial's last checkpoint before the evaluation that follows the last one recorded.

    What lies between is trained again, to the same numbers, so that the curve has neither gap nor repeat.
    """
    steps = sorted(
        int(Path(name).stem) for name in folder.list(f"checkpoints/{trial}") if name.endswith(".pt")
    )
    usable = [step for step in steps if step < (recorded // interval + 1) * interval]
    return f"checkpoints/{trial}/{usable[-1]:09d}.pt" if usable else None


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
