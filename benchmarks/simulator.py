"""The simulator behind `cbe plan --gpus` against two real runs, each foretold from the other's record.

    python -m benchmarks.simulator --json studies/records/simulator.json

One study of digits, with ASHA and a confirmation, runs with one trial at a time and with two. Two trials on
cores of one machine slow each other, which trials on machines of their own do not: how much is measured
apart, by steps in one process and in two at once, and told to the simulator as its speed. What it says
without that stands beside it, and what it says of each run from that run's own record.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from benchmarks.studies import engine
from cbe.spec import StudyConfig
from cbe.store.folder import StudyFolder
from cbe.study.budget.plan import START_S, measure
from cbe.study.budget.simulation import replay
from cbe.study.budget.trial_history import recorded
from cbe.study.scaling.machines import Cluster

SECTIONS: dict[str, Any] = {
    "data": {"source": "digits", "labels": 40, "validation": 200},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
    "training": {"steps": 150, "lr": 0.06, "ema": 0.98, "eval_every": 25},
    "search": "default",
    "scheduler": {"name": "asha", "grace": 0.2, "reduction": 3},
    "budget": {"trials": 14},
    "confirm": {"configs": 1, "runs": 2},
}
REPLAYS = 100
STEPS = 20  # of each measurement of a step
WITHIN = 0.25


def study(at_once: int) -> StudyConfig:
    return StudyConfig.model_validate(
        {"name": f"at-once-{at_once}", **SECTIONS, "resources": {"concurrent": at_once}}
    )


def _step_s(_: int) -> float:
    probe = measure(study(1), steps=STEPS)
    return (probe.step_s.low + probe.step_s.high) / 2


def slowdown(rounds: int = 2) -> dict[str, Any]:
    """How much longer a step takes where two processes are at it, each with a thread of its own."""
    alone, beside = [], []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(_step_s, range(2)))  # both are there, and warm
        for _ in range(rounds):
            alone.append(pool.submit(_step_s, 0).result())
            beside.append(statistics.mean(pool.map(_step_s, range(2))))
    ratios = [b / a for a, b in zip(alone, beside, strict=True)]
    return {"ratio": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": rounds}


def real(at_once: int) -> tuple[StudyFolder, dict[str, Any]]:
    """Runs the study; how long it took, and what of that was before the first trial and after the last."""
    load = os.getloadavg()[0]
    folder, wall_s = engine(study(at_once))
    rows = folder.table("trials", ["trial", "role", "state", "wall_s", "started", "updated"]).to_pylist()
    first = min(row["started"] for row in rows)
    last = max(row["updated"] for row in rows)
    states = [row["state"] for row in rows if row["role"] == "search"]
    return folder, {
        "load_before": load,
        "wall_s": wall_s,
        "from first trial to last, s": _seconds(first, last),
        "trial_s": sum(row["wall_s"] for row in rows),
        **{state: states.count(state) for state in sorted(set(states))},
        "confirmed": len(rows) - len(states),
    }


def _seconds(first: datetime, last: datetime) -> float:
    return (last - first).total_seconds()


def foretold(of: int, record: StudyFolder, speed: float, took_s: float) -> dict[str, Any]:
    """What the simulator says of a run, and how it compares with what the run took."""
    config = study(of)
    past = recorded(config, record)
    assert past is not None
    cluster = Cluster(of, node_start_s=0, idle_s=0)
    found = [replay(config, past.faster(speed), cluster, seed) for seed in range(REPLAYS)]
    walls = sorted(each.wall_s for each in found)
    middle = statistics.median(walls)
    return {
        "wall_s": middle,
        "from": walls[REPLAYS // 10],
        "to": walls[-REPLAYS // 10],
        "trial_s": statistics.median(each.busy_gpu_s for each in found),
        "pruned": statistics.median(each.pruned for each in found),
        "over real": middle / took_s,
    }


def check() -> dict[str, Any]:
    where, slower = machine(), slowdown()
    runs = {at_once: real(at_once) for at_once in (1, 2)}
    again = slowdown()
    ratio = (slower["ratio"] + again["ratio"]) / 2
    compared = {}
    for of, record, speed in (
        (2, 1, 1 / ratio),
        (1, 2, ratio),
        (2, 1, 1.0),
        (1, 2, 1.0),
        (1, 1, 1.0),
        (2, 2, 1.0),
    ):
        how = "" if of == record else ", slowing known" if speed != 1 else ", slowing unknown"
        name = f"{of} at once from the record of {record}{how}"
        compared[name] = foretold(of, runs[record][0], speed, runs[of][1]["wall_s"])
    judged = [told["over real"] for told in compared.values()]
    return {
        "question": "time of a study with one trial and with two at once, foretold from the other's record",
        "study": SECTIONS,
        "n": 2,
        "replays": REPLAYS,
        "seeds": f"of replays 0 to {REPLAYS - 1}; of the sampler 0",
        "assumed start_s": START_S,
        "two at once over one, step time": {"before": slower, "after": again},
        "real": {f"{at_once} at once": told for at_once, (_, told) in runs.items()},
        "foretold": compared,
        f"within {WITHIN:.0%}": all(abs(each - 1) <= WITHIN for each in judged),
        "machine": where,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    text = json.dumps(check(), indent=2)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
