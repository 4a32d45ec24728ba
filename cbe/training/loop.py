"""The loop around the step: evaluate, checkpoint, report, until all steps are done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cbe.data import Dataset
from cbe.errors import CheckpointError, DataError, NonFiniteLoss, Paused
from cbe.spec import TrainConfig
from cbe.spec.changes import FREE, require_same
from cbe.ssl.world import World
from cbe.training import checkpoint
from cbe.training.evaluate import Evaluator
from cbe.training.optimiser import learning_rate
from cbe.training.run import Run
from cbe.training.step import train_step
from cbe.training.summary import Summary, evaluation

Metrics = dict[str, Any]
Report = Callable[[Metrics, "Snapshot"], None]
Progress = Callable[[int, Metrics], None]


def train(
    config: TrainConfig,
    data: Dataset,
    report: Report,
    *,
    resume_from: Path | None = None,
    changed: Collection[str] = (),
    progress: Progress | None = None,
    leave: Callable[[], bool] = lambda: False,
    world: World | None = None,
) -> Summary:
    """Trains one model; `report(metrics, snapshot)` is called after every evaluation, by every worker.

    Where and whether to save the snapshot is the reporter's business. `progress(step, metrics)` is called
    every `log_every` steps with what the training itself tells. `changed` names settings, as `training.lr`,
    in which the config may differ from that of the checkpoint: the run goes on with the config's. Where
    `leave()` says so after a step, the snapshot is reported without an evaluation and the run is `Paused`.
    """
    run = Run(config, data, world)
    evaluations = _restore(run, resume_from, changed) if resume_from else []
    evaluator, training = Evaluator(run), run.config.training
    started, first = time.perf_counter(), run.step
    while run.step < training.steps:
        train_step(run)
        evaluates = run.step % training.evaluation_interval == 0 or run.step == training.steps
        if not evaluates and leave():
            report({"paused": run.step}, Snapshot(run, evaluations))
            raise Paused(f"left its process after step {run.step}")
        if not evaluates and run.step % training.log_every:
            continue
        metrics: Metrics = {"step": run.step, **run.meter.read()}
        metrics["steps_per_s"] = (run.step - first) / (time.perf_counter() - started)
        if evaluates:
            metrics |= evaluator()
            if not math.isfinite(metrics["validation_loss"]):  # the last update broke it, unseen by its loss
                raise NonFiniteLoss(run.step, {"validation_loss": metrics["validation_loss"]})
            metrics["pseudo_confusion"] = run.meter.confusion()
            metrics["lr"] = learning_rate(training, run.step - 1)
            run.meter.reset()
            evaluations.append(evaluation(metrics))
        if progress is not None:
            progress(run.step, metrics)
        if evaluates:
            report(metrics, Snapshot(run, evaluations))
    return Summary(evaluations)


@dataclass(frozen=True)
class Snapshot:
    """The run as it stands; valid until `report` returns."""

    run: Run
    evaluations: list[Metrics]

    @property
    def step(self) -> int:
        return self.run.step

    def save(self, path: Path) -> None:
        state = {
            "config": self.run.config.to_plain(),
            "split": self.run.data.split.digest,
            "evaluations": self.evaluations,
            "run": self.run.state_dict(),
        }
        checkpoint.save(state, path)


def _restore(run: Run, path: Path, changed: Collection[str]) -> list[Metrics]:
    state = checkpoint.load(path)
    try:
        require_same(state["config"], run.config.to_plain(), free={*FREE, *changed})
        if state["split"] != run.data.split.digest:
            raise DataError(
                f"{path}: the checkpoint was made on label split {state['split']}, this run has "
                f"{run.data.split.digest}: the data have changed; start anew with another --out"
            )
        run.load_state_dict(state["run"])
        evaluations: list[Metrics] = state["evaluations"]
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: does not fit this run ({str(error).splitlines()[0]}); start anew with another --out"
        ) from error
    return evaluations
