"""What a running study knows: every trial's state, said to the sampler and to the store."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import columns, config_id
from cbe.spec.metrics import SUMMARIZED
from cbe.spec.terms import Role
from cbe.ssl import resolve
from cbe.store.recorder import Recorder
from cbe.store.states import FINAL
from cbe.study.assignment import Assignment
from cbe.study.repeated_errors import RepeatedErrors
from cbe.study.search.sampling import Sampling
from cbe.study.trial.provenance import provenance
from cbe.study.trial.reuse import ReusableRuns
from cbe.training.summary import Summary, evaluation

Reports = Sequence[Mapping[str, Any]]  # evaluations of a trial, in the order of steps

# What a report says of the trial rather than of the step.
_OF_THE_TRIAL = ("parameters", "macs", "device", "node", "split")


class Ledger:
    """Takes in what happens, in the order it happens; nothing here knows Ray."""

    def __init__(self, study: StudyConfig, recorder: Recorder, sampling: Sampling, gpus: float) -> None:
        self.study, self.sampling = study, sampling
        self.recorder = recorder
        self.stop_reason: str | None = None  # why nothing new may start and what runs must stop
        self.broken: str | None = None  # the error that came again and again
        self.is_over = False  # finished: nobody can stop it any more
        self.reusable = ReusableRuns()  # what need not be trained again
        self.on_reuse: Callable[[str, Reports], None] = lambda trial, reports: None
        self._gpus = gpus
        self._started: dict[str, float] = {}
        self._waits: set[str] = set()  # for the scheduler, and wants no process meanwhile
        self._evaluations: dict[str, list[dict[str, Any]]] = {}
        self._errors = RepeatedErrors()
        self._provenance = provenance()
        self._catch_up()

    @property
    def rows(self) -> MappingProxyType[str, dict[str, Any]]:
        return self.recorder.rows

    def _catch_up(self) -> None:
        """Brings rows up to what is true: a driver that was killed has left trials that run no longer, and
        may have died between writing a report and its trial's row.
        """
        for name, row in self.rows.copy().items():
            if row["state"] == "running":
                self._put(name, state="interrupted")
            if row["state"] not in FINAL and self.recorder.recorded_step(name) > (row["step"] or 0):
                metric = self.study.objectives[0].metric
                past = self.recorder.past.evaluations(name, metric)
                values = self._values(name, {**row, **past[-1]})
                self._evaluations[name] = past
                self._put(name, step=past[-1]["step"], objective=values[0], values=values, **_figures(past))

    def assign(self, assignment: Assignment) -> bool:
        """Writes down what is about to run; False where it cannot be built, which is recorded too."""
        known = dict(
            study=self.study.name,
            role=assignment.role,
            preset=assignment.preset,
            seed=assignment.pair[0],
            label_split=assignment.pair[1],
            params=json.dumps(assignment.point),
            sampler=self.sampling.noted(assignment.trial),
            workers=self.study.resources.workers,
            **self._provenance,
        )
        try:
            config = resolve(assignment.config(self.study))
        except ConfigError as error:
            self._put(
                assignment.trial, state="infeasible", error_class="Infeasible", error_text=str(error), **known
            )
            if assignment.number is not None:
                self.sampling.tell(assignment.number, "infeasible", None)
            return False
        self._put(
            assignment.trial,
            state="running",
            **({} if assignment.trial in self.rows else {"started": _now(), "retries": 0}),
            **known,
            **self._configured(config),
        )
        return True

    def reuse(self, assignment: Assignment) -> bool:
        """Takes over a run that the store already holds, at no cost; False where there is none.

        What has a checkpoint of its own goes on from there.
        """
        name = assignment.trial
        run = self.reusable.find(assignment.role, self.rows[name]["config_id"], assignment.pair)
        if run is None or assignment.resume:
            return False
        reports = run.reports
        values = run.values(self.study, reports)
        if values is None:
            return False
        for report in reports:
            self.recorder.metrics(name, report, replace=True)
        self._put(
            name,
            state="completed",
            objective=values[0],
            values=values,
            reused_from=run.name,
            **run.figures,
            **{key: self.rows[name][key] or 0.0 for key in ("wall_s", "gpu_s", "cost_usd")},
        )
        self.recorder.event("reused", name, reused_from=run.name)
        if assignment.number is not None:
            metric = self.study.objectives[0].metric
            for report in reports:
                if report.get(metric) is not None:
                    self.sampling.report(assignment.number, report["step"], report[metric])
            self.sampling.tell(assignment.number, "completed", values)
        self.on_reuse(name, reports)
        return True

    def _configured(self, config: TrainConfig) -> dict[str, Any]:
        return {
            "config_id": config_id(config),
            "config": json.dumps(config.to_plain()),
            "steps": config.training.steps,
            **columns(config),
        }

    def started(self, assignment: Assignment) -> None:
        """A trial's process has begun, for the first time or again."""
        self._started[assignment.trial] = time.monotonic()
        self._errors.running(len(self._started))
        self._waits.discard(assignment.trial)
        self._put(assignment.trial, state="running")
        if assignment.resume:
            self.recorder.event("resumed", assignment.trial, checkpoint=assignment.resume)
        else:
            self.recorder.event("started", assignment.trial)

    def exploited(self, assignment: Assignment, point: dict[str, Any]) -> None:
        """Population-based training goes on with another trial's weights and a point near that trial's.

        The point that was sampled ended here, and that is what the sampler hears.
        """
        name, config = assignment.trial, resolve(self.study.train_config(point, *assignment.pair))
        self.recorder.event("exploited", name, point=point)
        self._put(name, params=json.dumps(point), **self._configured(config))
        if assignment.number is not None:
            self.sampling.tell(assignment.number, "pruned", None)

    def reported(self, assignment: Assignment, result: Mapping[str, Any]) -> None:
        """One report of a trial, or the last words of one that failed."""
        name = assignment.trial
        if "error_class" in result:
            return
        past = self._history(name)
        if past and past[-1]["step"] >= result["step"]:  # trained again after a loss
            return
        past.append(evaluation(result))
        self.recorder.metrics(name, {**result, "wall_s": self._wall_s(name)})
        self._put(
            name,
            step=result["step"],
            objective=self._values(name, result)[0],
            values=self._values(name, result),
            checkpoint=result.get("checkpoint"),
            **{key: result.get(key) for key in _OF_THE_TRIAL},
            **self._spent(name),
            **_figures(past),
        )
        objective = result.get(self.study.objectives[0].metric)
        if assignment.number is not None and objective is not None:
            self.sampling.report(assignment.number, result["step"], objective)

    def ended(self, assignment: Assignment, result: Mapping[str, Any]) -> None:
        """A trial has stopped for good, or, where the study is stopping, until it is resumed."""
        name = assignment.trial
        row = self.rows[name]
        if "error_class" in result:
            self.failed(assignment, str(result["error_class"]), str(result["error_text"]))
            return
        done = (row["step"] or 0) >= row["steps"]
        if self.stop_reason and not done:
            return  # `settle` says what becomes of those
        state = "completed" if done else "pruned"
        self._put(name, state=state, **self._spent(name))
        self.recorder.event(state, name, step=row["step"])
        self._leaves(name)
        self._errors.ended(None)
        if assignment.number is not None:
            self.sampling.tell(assignment.number, state, self.rows[name]["values"])

    def settle(self) -> None:
        """Nothing runs any more: what has not ended can be resumed."""
        if self.stop_reason:
            self.recorder.event("stopped", reason=self.stop_reason)
        for name, row in self.rows.copy().items():
            if row["state"] == "running":
                self._put(name, state="interrupted", **self._spent(name))
                self.recorder.event("interrupted", name, step=row.get("step"))
        self._started.clear()

    def failed(self, assignment: Assignment, error_class: str, error_text: str) -> None:
        """A trial has failed; where most of the last ones have, by the same error, the study halts."""
        name = assignment.trial
        spent = self._spent(name)
        self._put(name, state="failed", error_class=error_class, error_text=error_text, **spent)
        self.recorder.event("failed", name, error_class=error_class, error_text=error_text)
        self._leaves(name)
        if assignment.number is not None:
            self.sampling.tell(assignment.number, "failed", None, error_class)
        if alike := self._errors.ended(error_class):
            self.break_off(f"{alike}: {self.rows[name]['error_text']}")  # a text without its secrets

    def _leaves(self, trial: str) -> None:
        """A trial has ended for good."""
        self._started.pop(trial, None)
        self._waits.discard(trial)
        self._evaluations.pop(trial, None)

    def paused(self, trial: str, step: int | None = None) -> None:
        """A scheduler lets a trial wait, or it was told to leave its process and did after some step."""
        begun = trial in self._started
        if begun and step is not None:
            self.recorder.event("paused", trial, step=step)
        if step is None and trial not in self._waits:
            self._waits.add(trial)
            self.sampling.pause(trial)
            self._put(trial, sampler=self.sampling.noted(trial))
        if begun:
            self._put(trial, **self._spent(trial))
            del self._started[trial]

    def recovering(self, assignment: Assignment, charged: bool = True) -> None:
        """A trial's process was lost; Ray starts another. The loss of its machine is not held against it."""
        name = assignment.trial
        retries = (self.rows[name]["retries"] or 0) + charged
        self._put(name, retries=retries, **self._spent(name))
        self._started.pop(name, None)
        kind = "recovering" if charged else "preempted"
        self.recorder.event(kind, name, step=self.rows[name]["step"])

    def break_off(self, reason: str) -> None:
        """Halts a study that would go on failing."""
        self.broken = reason
        self.halt("repeated errors")

    def halt(self, reason: str) -> None:
        """Lets nothing new start and everything that runs stop, to be resumed some day."""
        self.stop_reason = self.stop_reason or reason

    def in_role(self, role: Role) -> Iterator[Mapping[str, Any]]:
        return (row for row in self.rows.values() if row["role"] == role)

    @property
    def busy(self) -> int:
        """Trials that have a process."""
        return len(self._started)

    @property
    def waiting(self) -> int:
        """Trials that want one."""
        running = [name for name, row in self.rows.copy().items() if row["state"] == "running"]
        return len(set(running) - self._started.keys() - self._waits)

    @property
    def paused_trials(self) -> frozenset[str]:
        """Trials that wait for the scheduler, and may never go on."""
        return frozenset(self._waits)

    @property
    def trials_s(self) -> float:
        """Of all trials so far, those that run included."""
        now = time.monotonic()
        running = sum(now - at for at in list(self._started.values()))
        return sum(row["wall_s"] or 0.0 for row in self.rows.copy().values()) + running

    def price(self, seconds: float) -> dict[str, float]:
        """What one trial's place costs in so long, in the terms of the budget."""
        hours = seconds / 3600
        return {"gpu_hours": hours * self._gpus, "usd": hours * self.study.resources.usd_per_hour}

    def _put(self, trial: str, **known: Any) -> None:
        self.recorder.trial(trial, **known, updated=_now())

    def _wall_s(self, trial: str) -> float:
        row = self.rows[trial]
        return float(row["wall_s"] or 0.0) + time.monotonic() - self._started.get(trial, time.monotonic())

    def _spent(self, trial: str) -> dict[str, float]:
        wall_s = self._wall_s(trial)
        if trial in self._started:
            self._started[trial] = time.monotonic()
        return {
            "wall_s": wall_s,
            "gpu_s": wall_s * self._gpus,
            "cost_usd": wall_s / 3600 * self.study.resources.usd_per_hour,
        }

    def _history(self, trial: str) -> list[dict[str, Any]]:
        """The evaluations of a trial, those before a restart included."""
        if trial not in self._evaluations:
            self._evaluations[trial] = self.recorder.past.evaluations(trial)
        return self._evaluations[trial]

    def _values(self, trial: str, result: Mapping[str, Any]) -> list[float]:
        own = {"wall_s": self._wall_s(trial)}
        found = [result.get(o.metric, own.get(o.metric)) for o in self.study.objectives]
        return [math.nan if value is None else float(value) for value in found]


def _figures(past: list[dict[str, Any]]) -> dict[str, Any]:
    """last_, median_ and best_ of a trial's evaluations."""
    if past[-1]["validation_error"] is None:
        return {}
    summary = Summary(past)
    found = {
        f"{which}_{name}": values[name] for which, values in summary.to_plain().items() for name in SUMMARIZED
    }
    return {**found, "best_step": summary.best["step"]}


def _now() -> datetime:
    return datetime.now(UTC)
