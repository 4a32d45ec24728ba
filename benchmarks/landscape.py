"""Landscapes: every config of a sample of the default search, trained to its end on the same few pairs.

    python -m benchmarks.landscape record digits  # goes on where it was stopped
    python -m benchmarks.landscape signal digits  # what predicts the end, and how early

Fashion-MNIST is read as Parquet from data/fashion_mnist, or from where CBE_FASHION_MNIST says.

A search strategy replayed on a landscape (`python -m benchmarks.search`) costs milliseconds where the real
one costs minutes, and the true error of what it chooses is known.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import spearmanr

from cbe.spec import StudyConfig
from cbe.spec.search import applicable, order

FOLDER = Path(__file__).parent / "landscapes"
METRICS = ("validation_error", "validation_loss", "test_error")


@dataclass(frozen=True)
class Plan:
    """A landscape: a study, how many configs of its search, and on which pairs."""

    study: StudyConfig
    configs: int  # sampled ones, beside the paper's and the base; every third is drawn near the paper's
    pairs: int

    def points(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """How each config was chosen, and its point; the same at every call."""
        yield "paper", {}
        yield "base", {}
        rng = np.random.default_rng(14)
        for number in range(self.configs):
            source = "prior" if number % 3 == 0 else "even"
            point: dict[str, Any] = {}
            for key in order(self.study.search):
                parameter = self.study.search[key]
                if applicable(key, parameter, self.study.values(point)):
                    point[key] = parameter.draw(rng) if source == "prior" else parameter.draw_evenly(rng)
            yield source, point


def _study(name: str, **sections: Any) -> StudyConfig:
    """A study of the default search, believed in firmly enough to draw configs near the paper's."""
    study = StudyConfig.model_validate({"name": name, "method": "fixmatch", **sections})
    firm = {
        key: {**parameter.model_dump(), "prior": {"at": parameter.prior.at, "confidence": "medium"}}
        for key, parameter in study.search.items()
        if parameter.prior
    }
    return StudyConfig.model_validate({**study.to_plain(), "search": firm})


def plans() -> dict[str, Plan]:
    short = {"name": "wrn-10-1", "bn_momentum": 0.05}
    digits = _study(
        "digits",
        data={"source": "digits", "labels": 40, "validation": 500},
        model=short,
        training={"steps": 300, "lr": 0.06, "ema": 0.98, "eval_every": 25},
    )
    fashion = _study(
        "fashion",
        data={
            "source": "parquet",
            "path": os.environ.get("CBE_FASHION_MNIST", "data/fashion_mnist"),
            "labels": 40,
            "validation": 500,
            "size": 16,
        },
        model=short,
        training={
            "steps": 300,
            "batch_size": 16,
            "unlabeled_ratio": 4,
            "lr": 0.03,
            "ema": 0.98,
            "eval_every": 25,
        },
    )
    return {"digits": Plan(digits, 258, 6), "fashion": Plan(fashion, 78, 4)}


def run_one(name: str, number: int, pair: int) -> dict[str, Any]:
    """Trains one config on one pair, the seed and the label split being the pair's number."""
    import torch

    from cbe.data import open_dataset
    from cbe.errors import NonFiniteLoss
    from cbe.training.loop import train

    torch.set_num_threads(1)
    plan = plans()[name]
    source, point = list(plan.points())[number]
    fixed = {"paper": plan.study.paper_config, "base": plan.study.base_config}
    config = fixed[source](pair, pair) if source in fixed else plan.study.train_config(point, pair, pair)
    data = open_dataset(config.data)
    if len(data.test.labels) > len(data.validation.labels):  # not worth its time here
        data = replace(data, test=None)
    curve: dict[str, list[Any]] = {key: [] for key in ("step", *METRICS)}
    began, state = time.perf_counter(), "completed"
    try:
        train(config, data, lambda metrics, _: [curve[key].append(metrics.get(key)) for key in curve])
    except NonFiniteLoss:
        state = "failed"
    return {
        "config": number,
        "pair": pair,
        "source": source,
        "point": json.dumps(point),
        "state": state,
        "wall_s": time.perf_counter() - began,
        **curve,
    }


def record(name: str, processes: int) -> None:
    """Trains what the record does not have yet, all configs on one pair before the next."""
    plan, lines = plans()[name], FOLDER / f"{name}.jsonl"
    if not lines.exists() and (packed := FOLDER / f"{name}.parquet").exists():
        rows = pq.read_table(packed).to_pylist()
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = {(row["config"], row["pair"]) for row in recorded(lines)}
    numbers = range(plan.configs + 2)
    wanted = [(n, pair) for pair in range(plan.pairs) for n in numbers if (n, pair) not in done]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool, lines.open("a", encoding="utf-8") as out:
        running = [pool.submit(run_one, name, n, pair) for n, pair in wanted]
        for count, each in enumerate(as_completed(running), 1):
            out.write(json.dumps(each.result()) + "\n")
            out.flush()
            if count % 50 == 0 or count == len(wanted):
                pack(name)
                print(f"{count} of {len(wanted)}", flush=True)
    pack(name)


def recorded(lines: Path) -> list[dict[str, Any]]:
    """The runs on record; the last line may be half written."""
    rows = []
    for line in lines.read_text(encoding="utf-8").splitlines() if lines.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def pack(name: str) -> None:
    """Writes what is on record as one Parquet file, with the study and the machine beside it."""
    from benchmarks.harness import machine

    plan = plans()[name]
    floats = pa.list_(pa.float32())
    schema = pa.schema(
        [
            *(("config", pa.int16()), ("pair", pa.int16()), ("source", pa.string()), ("point", pa.string())),
            *(("state", pa.string()), ("wall_s", pa.float32()), ("step", pa.list_(pa.int32()))),
            *((metric, floats) for metric in METRICS),
        ],
        metadata={
            "study": json.dumps(plan.study.to_plain()),
            "machine": json.dumps(machine()),
        },
    )
    rows = [
        row
        for row in recorded(FOLDER / f"{name}.jsonl")
        if row["config"] < plan.configs + 2 and row["pair"] < plan.pairs
    ]
    rows.sort(key=lambda row: (row["config"], row["pair"]))
    pq.write_table(pa.Table.from_pylist(rows, schema), FOLDER / f"{name}.parquet", compression="zstd")


def signal(name: str) -> None:
    """Rank correlation of each figure at each step with the validation error at the end, within a pair."""
    rows = pq.read_table(FOLDER / f"{name}.parquet").to_pylist()
    whole = [row for row in rows if row["state"] == "completed"]
    steps = whole[0]["step"]
    print(f"{name}: {len(whole)} runs; Spearman's rank correlation with the end, mean over pairs")
    for index, step in enumerate(steps):
        figures = []
        for metric in ("validation_error", "validation_loss"):
            by_pair = []
            for pair in {row["pair"] for row in whole}:
                own = [row for row in whole if row["pair"] == pair]
                now = [row[metric][index] for row in own]
                end = [row["validation_error"][-1] for row in own]
                by_pair.append(spearmanr(now, end).statistic)
            figures.append(f"{metric} {np.mean(by_pair):.2f}")
        print(f"  step {step:4d}: {'  '.join(figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["record", "signal"])
    parser.add_argument("name", choices=list(plans()))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.command == "record":
        record(given.name, given.processes)
    else:
        signal(given.name)


if __name__ == "__main__":
    main()
