"""How fast the store answers: a million trials in 200 studies, beside Optuna's own SQLite storage.

    python -m benchmarks.answers [--trials 1000000] [--fill-s 60]

Rows are made up, with every column that the engine would have written: configs of five runs each. Optuna gets
as many such trials as SQLite takes within `--fill-s`, and is asked the same: which config has the best mean
over its runs? The ratio is of that question, from a storage just opened, over the same trials in both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pyarrow as pa
import yaml

from benchmarks.harness import interleaved, machine, ratio
from cbe.report.across import best_of_all
from cbe.report.best import best
from cbe.spec import StudyConfig
from cbe.spec.identity import columns
from cbe.ssl import resolve
from cbe.store.clock import tick
from cbe.store.compact import new_name
from cbe.store.folder import STUDY_FILE, Store
from cbe.store.history import remembered
from cbe.store.schema import TRIALS

RUNS = 5


def study_of(name: str, trials: int) -> StudyConfig:
    return StudyConfig.model_validate(
        {
            "name": name,
            "data": {"labels": 40, "validation": 200},
            "model": "wrn-10-1",
            "search": {"loss.weights.lb": {"float": [0.1, 10]}, "method.threshold": {"float": [0.5, 0.99]}},
            "budget": {"trials": trials},
            "seeds": list(range(RUNS)),
            "confirm": "off",
        }
    )


def rows_of(study: StudyConfig, configs: int, seed: int) -> pa.Table:
    """Completed trials of so many configs, five of each."""
    return pa.Table.from_pydict(_columns(study, configs, seed), schema=TRIALS.schema)


def fill(store: Store, name: str, trials: int, seed: int) -> None:
    """A finished study of so many trials, as it lies in a store after its tables were merged."""
    study, folder = study_of(name, trials), store.study(name)
    folder.write(STUDY_FILE, yaml.safe_dump(study.to_plain()).encode())
    rows = rows_of(study, trials // RUNS, seed)
    for half in (rows.slice(0, trials // 2), rows.slice(trials // 2)):
        folder.location.at(f"trials/{new_name()}").write(TRIALS.encode(half))
    folder.finish()


def _columns(study: StudyConfig, configs: int, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    trials = configs * RUNS
    of_config = np.arange(trials) // RUNS
    errors = draw.uniform(0.05, 0.5, configs)[of_config] + draw.normal(0, 0.01, trials)
    points = [
        json.dumps({"loss.weights.lb": float(weight), "method.threshold": float(threshold)})
        for weight, threshold in zip(
            draw.uniform(0.1, 10, configs), draw.uniform(0.5, 0.99, configs), strict=True
        )
    ]
    config = resolve(study.train_config({}, 0, 0))
    same = {
        "study": study.name,
        "role": "search",
        "state": "completed",
        "config": json.dumps(config.to_plain()),
    }
    same |= {"steps": 300, "step": 300, "node": "node", "device": "cpu", "workers": 1, "retries": 0}
    same |= {"versions": "{}", "git_commit": "0" * 40, "label_split": 0, **columns(config)}
    varied = {
        "trial": [f"t{number:04d}" for number in range(trials)],
        "revision": np.arange(trials) + tick(),
        "config_id": [f"{seed:04x}{number:08x}" for number in of_config],
        "params": [points[number] for number in of_config],
        "preset": ["paper"] * RUNS + ["base"] * RUNS + [None] * (trials - 2 * RUNS),
        "seed": np.arange(trials) % RUNS,
        "values": [[error] for error in errors],
        **dict.fromkeys(("objective", "last_validation_error", "last_test_error"), errors),
    }
    return {name: varied.get(name, [same.get(name)] * trials) for name in TRIALS.schema.names}


def fill_optuna(store: Store, url: str, seconds: float) -> int:
    """Puts a study's trials into an Optuna storage, config by config, and says how many it took."""
    folder = store.study("s0000")
    study = StudyConfig.model_validate(yaml.safe_load(folder.read(STUDY_FILE) or b""))
    rows = folder.table("trials").sort_by("trial").to_pylist()
    made = optuna.create_study(study_name="s0000", storage=url)
    start, taken = time.perf_counter(), 0
    while time.perf_counter() - start < seconds and taken < len(rows):
        for row in rows[taken : taken + RUNS]:
            trial = remembered(study, row)
            assert trial is not None
            trial.set_user_attr("config_id", row["config_id"])
            made.add_trial(trial)
        taken += RUNS
    return taken


def ask_optuna(url: str) -> str:
    """The config with the best mean, from a storage that was just opened."""
    values: dict[str, list[float]] = defaultdict(list)
    for trial in optuna.load_study(study_name="s0000", storage=url).get_trials(deepcopy=False):
        values[trial.user_attrs["config_id"]].append(trial.value or 0.0)
    return min(values, key=lambda config: statistics.fmean(values[config]))


def measure(
    trials: int = 1_000_000, studies: int = 200, fill_s: float = 60, rounds: int = 7
) -> dict[str, Any]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="cbe-bench-") as aside:
        store = Store.open(f"{aside}/results")
        for number in range(studies):
            fill(store, f"s{number:04d}", trials // studies, number)
        numbers = count()  # another study every time: none is in a cache of ours
        ours = interleaved(
            {
                "one": lambda: best(store.study(f"s{next(numbers) % studies:04d}")),
                "all": lambda: best_of_all(store, 3),
            },
            rounds,
        )
        url = f"sqlite:///{Path(aside) / 'optuna.db'}"
        held = fill_optuna(store, url, fill_s)
        same = Store.open(f"{aside}/same")
        fill(same, "s0000", held, 0)
        found: dict[str, str] = {}
        both = interleaved(
            {
                "ours": lambda: found.update(ours=best(same.study("s0000")).ranked[0].config_id),
                "optuna": lambda: found.update(optuna=ask_optuna(url)),
            },
            rounds,
        )
    return {
        "machine": machine(),
        "trials": trials,
        "studies": studies,
        "one_s": _spread(ours["one"]),
        "all_s": _spread(ours["all"]),
        "optuna holds after fill_s": {"trials": held, "fill_s": fill_s},
        "optuna_s": _spread(both["optuna"]),
        "ours_s": _spread(both["ours"]),
        "optuna over ours": ratio(both["optuna"], both["ours"]),
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"ratio": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "n": len(seconds)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--fill-s", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    print(json.dumps(measure(given.trials, given.studies, given.fill_s, given.rounds), indent=2))
