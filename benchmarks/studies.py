"""What the engine adds to a trial, what the driver costs, and what early stopping saves.

    python -m benchmarks.studies [overhead] [driver] [search]

`overhead`: a trial's start and the gap to the next, in the trial's own warm process and in a plain Ray
Train worker group nested in Ray Tune. `driver`: a thousand trials of ten reports each through the engine,
with all its recording, against bare Ray Tune with OptunaSearch and none. `search`: trial-seconds to the same
validation error, ASHA + TPE against random search at full length.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbe.environment  # noqa: F401  before Ray

# isort: split
import optuna
import ray
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.search.optuna import OptunaSearch

from benchmarks.harness import machine
from cbe.data import open_dataset
from cbe.spec import StudyConfig
from cbe.ssl.world import World
from cbe.store.folder import Store, StudyFolder
from cbe.study.assignment import Assignment
from cbe.study.engine import run
from cbe.study.trial.process import Shared
from cbe.training.launch import Send
from cbe.training.loop import train

DIGITS: dict[str, Any] = {
    "data": {"source": "digits", "labels": 40, "validation": 200},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
    "confirm": {"configs": 0, "runs": 0},
}


def study(name: str, **sections: Any) -> StudyConfig:
    return StudyConfig.model_validate({"name": name, **DIGITS, **sections})


def engine(config: StudyConfig, **options: Any) -> tuple[StudyFolder, float]:
    """Runs a study into a folder of its own; the folder and the seconds."""
    store = Store.open(tempfile.mkdtemp(prefix="cbe-bench-"))
    start = time.perf_counter()
    run(config, store, **options)
    return store.study(config.name), time.perf_counter() - start


# --- overhead of a trial

SHORT = {"steps": 2, "eval_every": 1, "batch_size": 8, "unlabeled_ratio": 2, "lr": 0.06}


def overhead(trials: int = 8, nested: int = 4) -> dict[str, Any]:
    ours, theirs = _direct(trials), _nested(nested)
    return {
        "direct": ours,
        "nested TorchTrainer": theirs,
        "nested over direct": theirs["first_s"] / ours["first_s"],  # from decision to first report
    }


def _direct(trials: int) -> dict[str, Any]:
    config = study(
        "overhead", training=SHORT, scheduler="none", budget={"trials": trials}, resources={"concurrent": 1}
    )
    folder, _ = engine(config)
    rows = sorted(folder.table("trials").to_pylist(), key=lambda row: row["trial"])
    seen = folder.table("metrics", ["trial", "step", "time"]).sort_by("step").to_pylist()
    times = {row["trial"]: [m["time"] for m in seen if m["trial"] == row["trial"]] for row in rows}
    first = [(times[row["trial"]][0] - row["started"]).total_seconds() for row in rows]
    gaps = [
        (after["started"] - times[before["trial"]][-1]).total_seconds() for before, after in pairwise(rows)
    ]
    return _told(first, gaps)


def _told(first: list[float], gaps: list[float]) -> dict[str, Any]:
    return {
        "cold_first_s": first[0],
        "first_s": statistics.median(
            first[1:]
        ),  # decision to first report: one step and one evaluation included
        "gap_s": statistics.median(gaps),  # last report to the next trial's decision
        "n": len(first) - 1,
    }


class _Stamped(OptunaSearch):  # type: ignore[misc]
    """Notes when a point is decided on."""

    def suggest(self, trial_id: str) -> Any:
        found = super().suggest(trial_id)
        if found is not None:
            STAMPS.append(("decided", trial_id, time.perf_counter()))
        return found


STAMPS: list[tuple[str, str, float]] = []


class _Reports(tune.Callback):  # type: ignore[misc]
    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        STAMPS.append(("report", trial.trial_id, time.perf_counter()))


def _nested(trials: int) -> dict[str, Any]:
    """The way Ray's documentation nests Train in Tune."""
    config = study("overhead", training=SHORT).paper_config(0, 0)
    STAMPS.clear()

    def loop() -> None:
        data = open_dataset(config.data)
        train(
            config,
            data,
            lambda metrics, _: ray.train.report({"validation_error": metrics["validation_error"]}),
        )

    def trial(point: dict[str, Any]) -> None:
        TorchTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(callbacks=[TuneReportCallback()], storage_path=tempfile.mkdtemp()),
        ).fit()

    ray.init("local", include_dashboard=True, log_to_driver=False, logging_level="ERROR")
    tune.Tuner(
        tune.with_resources(trial, {"node:__internal_head__": 0.001}),
        tune_config=tune.TuneConfig(
            search_alg=_Stamped(_space, metric="validation_error", mode="min"),
            num_samples=trials,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(callbacks=[_Reports()], storage_path=tempfile.mkdtemp(), verbose=0),
    ).fit()
    ray.shutdown()
    decided = [(trial, at) for kind, trial, at in STAMPS if kind == "decided"]
    reports = {
        trial: [at for kind, t, at in STAMPS if kind == "report" and t == trial] for trial, _ in decided
    }
    first = [reports[trial][0] - at for trial, at in decided]
    gaps = [after - reports[trial][-1] for (trial, _), (_, after) in pairwise(decided)]
    return _told(first, gaps)


def _space(trial: optuna.Trial) -> None:
    trial.suggest_float("loss.weights.lb", 0.1, 10, log=True)
    trial.suggest_float("loss.weights.lv", 0.1, 10, log=True)


# --- cost of the driver

SPACE = {name: {"float": [0.1, 10], "log": True} for name in ("loss.weights.lb", "loss.weights.lv")}
REPORTS = 10


def trivial(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    lb = float(assignment.point.get("loss.weights.lb", 1.0))
    for step in range(1, REPORTS + 1):
        send({"step": step, "validation_error": abs(lb - 1) + 1 / step}, None)


def bare_trivial(point: dict[str, Any]) -> None:
    for step in range(1, REPORTS + 1):
        tune.report({"step": step, "validation_error": abs(point["loss.weights.lb"] - 1) + 1 / step})


def driver(trials: int = 1000, rounds: int = 1) -> dict[str, Any]:
    config = study(
        "driver",
        search=SPACE,
        training={"steps": REPORTS, "eval_every": 1},
        scheduler="none",
        budget={"trials": trials},
        resources={"concurrent": 2},
    )
    ratios, seconds = [], []
    for number in range(rounds):
        pair: dict[str, float] = {}
        contenders: list[tuple[str, Callable[[], float]]] = [
            ("engine", lambda: engine(config, body=trivial)[1]),
            ("bare", lambda: _bare(trials)),
        ]
        for name, contender in contenders if number % 2 else reversed(contenders):
            pair[name] = contender()
        ratios.append(pair["engine"] / pair["bare"])
        seconds.append(pair)
    return {"ratio": statistics.median(ratios), "seconds": seconds, "n": rounds, "trials": trials}


def _bare(trials: int) -> float:
    start = time.perf_counter()
    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tune.Tuner(
        tune.with_resources(bare_trivial, {"CPU": 1}),
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(
                _space,
                metric="validation_error",
                mode="min",
                sampler=optuna.samplers.TPESampler(seed=0, constant_liar=True),
            ),
            num_samples=trials,
            max_concurrent_trials=2,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0),
    ).fit()
    ray.shutdown()
    return time.perf_counter() - start


# --- what early stopping saves

TRIALS, STEPS = 16, 200
METHODS: dict[str, dict[str, Any]] = {
    "asha + tpe": {"sampler": "tpe", "scheduler": {"name": "asha", "grace": 40, "reduction": 3}},
    "random, full length": {"sampler": "random", "scheduler": "none"},
}


def search(seeds: tuple[int, ...] = (0, 1, 2)) -> dict[str, Any]:
    ratios, told = [], []
    for seed in seeds:
        found = {name: _searched(name, seed) for name in METHODS}
        # What both reached: the one that got further is not asked for more than the other gave.
        target = max(min(error for _, error in curve) for curve in found.values())
        needed = {name: next(at for at, error in curve if error <= target) for name, curve in found.items()}
        ratios.append(needed["random, full length"] / needed["asha + tpe"])
        told.append({"seed": seed, "target": target, **{f"{name}, s": needed[name] for name in METHODS}})
    return {"random over asha + tpe": statistics.median(ratios), "seeds": told, "n": len(ratios)}


def _searched(name: str, seed: int) -> list[tuple[float, float]]:
    """(trial-seconds so far of all trials, validation error) of every report, in the order of time."""
    about = METHODS[name]
    config = study(
        "search",
        training={"steps": STEPS, "eval_every": 20, "lr": 0.06, "ema": 0.98},
        budget={"trials": TRIALS},
        scheduler=about["scheduler"],
        sampler={"name": about["sampler"], "seed": seed},
        seeds=[seed],
        label_splits=[seed],
    )
    folder, _ = engine(config)
    rows = (
        folder.table("metrics", ["trial", "step", "time", "wall_s", "validation_error"])
        .sort_by("time")
        .to_pylist()
    )
    spent: dict[str, float] = {}
    curve = []
    for row in rows:
        spent[row["trial"]] = row["wall_s"]
        curve.append((sum(spent.values()), row["validation_error"]))
    return curve


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"overhead": overhead, "driver": driver, "search": search}


def measure(parts: list[str] | None = None) -> dict[str, Any]:
    return {"machine": machine(), **{name: PARTS[name]() for name in parts or PARTS}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = measure(options.parts)
    text = json.dumps(results, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
