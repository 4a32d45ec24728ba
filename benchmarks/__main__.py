"""All speed figures in one run, as a table and as JSON. About half an hour on two quiet cores."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import answers, step, store, studies, views
from benchmarks.harness import machine

# What is promised: what, of which network, where the figure stands in the results, and its bound.
PROMISES: tuple[tuple[str, str, tuple[str, ...], str, float], ...] = (
    ("views/s over Pillow, 2 workers", "", ("views", "times_pillow"), "≥", 5.0),
    ("views/s over torchvision v2", "", ("views", "times_torchvision"), "≥", 1.0),
    ("CBE step over one head", "wrn-28-2", ("channel over single",), "≤", 1.03),
    ("CBE peak memory over one head", "wrn-28-2", ("memory",), "≤", 1.05),
    ("outside forward and backward", "wrn-28-2", ("share outside forward and backward",), "≤", 0.10),
    ("split step over its floor", "wrn-28-2", ("split over its floor",), "≤", 1.12),
    ("joint step over its floor", "wrn-28-2", ("joint over its floor",), "≤", 1.08),
    ("split step over its floor", "wrn-10-1", ("split over its floor",), "≤", 1.25),
    ("joint step over its floor", "wrn-10-1", ("joint over its floor",), "≤", 1.25),
    ("plain PyTorch over split", "wrn-28-2", ("plain loop over split",), "≥", 1.0),
    ("plain PyTorch over joint", "wrn-28-2", ("plain loop over joint",), "≥", 1.0),
    ("plain PyTorch over split", "wrn-10-1", ("plain loop over split",), "≥", 1.0),
    ("plain PyTorch over joint", "wrn-10-1", ("plain loop over joint",), "≥", 1.0),
    ("trial: decision to first report, s", "studies", ("overhead", "direct", "first_s"), "≤", 1.5),
    ("trial: last report to the next, s", "studies", ("overhead", "direct", "gap_s"), "≤", 1.5),
    ("nested TorchTrainer's start over ours", "studies", ("overhead", "nested over direct"), "≥", 1.0),
    ("1,000 trials recorded over bare Tune", "studies", ("driver", "ratio"), "≤", 1.3),
    ("random search's time over ASHA + TPE's", "studies", ("search", "random over asha + tpe"), "≥", 1.0),
    ("best of one study, a million trials, s", "answers", ("one_s",), "≤", 0.3),
    ("best of 200 studies, the same trials, s", "answers", ("all_s",), "≤", 2.0),
    ("a list of 10,000 studies on S3, s", "store", ("listing", "list_s"), "≤", 2.0),
    ("best of one of them, s", "store", ("listing", "one_s"), "≤", 0.3),
    ("one trial's curve of 10,000,000 reports on S3, s", "store", ("curve", "curve_s"), "≤", 0.2),
    ("Optuna's SQLite over the store", "answers", ("optuna over ours",), "≥", 1.0),
)


def measure(rounds: int) -> dict[str, Any]:
    return {
        "machine": machine(),
        "views": views.measure(),
        "wrn-10-1": step.measure("wrn-10-1", 2 * rounds),
        "wrn-28-2": step.measure("wrn-28-2", rounds) | {"memory": step.memory("wrn-28-2")},
        "studies": studies.measure(),
        "answers": answers.measure(),
        "store": store.measure(("listing", "curve")),
    }


def show(results: dict[str, Any]) -> None:
    where = results["machine"]
    title = f"{where['cpu']}, {where['cores']} cores, torch {where['torch']}, Python {where['python']}"
    table = Table(title=title, title_justify="left")
    table.add_column("ratio within one run")
    table.add_column("network")
    for name in ("median", "min..max", "n", "wanted", ""):
        table.add_column(name, justify="right")
    for name, network, place, sign, bound in PROMISES:
        value, spread, count = _figure(results, (network, *place) if network else place)
        holds = value <= bound if sign == "≤" else value >= bound
        table.add_row(
            name, network, f"{value:.3f}", spread, count, f"{sign} {bound:g}", "yes" if holds else "NO"
        )
    Console().print(table)


def _figure(results: dict[str, Any], place: tuple[str, ...]) -> tuple[float, str, str]:
    found = results
    for key in place[:-1]:
        found = found[key]
    last = found[place[-1]]
    if isinstance(last, dict):
        spread = f"{last['min']:.2f}..{last['max']:.2f}" if "min" in last else ""
        return last["ratio"], spread, str(last["n"])
    if f"{place[-1]}_min" not in found:
        return last, "", str(found.get("n", ""))
    low, high = (found[f"{place[-1]}_{side}"] for side in ("min", "max"))
    return last, f"{low:.1f}..{high:.1f}", str(found["rounds"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=8, help="of the large network; the small one has twice as many"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = measure(options.rounds)
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
