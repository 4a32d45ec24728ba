"""The quickstart study run again with other seeds of its sampler: does it end in the same verdict?

    python -m benchmarks.quickstart results/quickstarts --json studies/records/quickstart-seeds.json

Each run is `cbe run` in a process and a store of its own. A run that was stopped goes on at the next call.
The pairs of the confirmation are those of the study file, the same for all runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import cbe
from benchmarks.harness import machine
from cbe.report.best import Ranked
from cbe.store.folder import Store
from cbe.store.states import status

STUDY = Path("studies/quickstart.yaml")
NAME = "quickstart"


def run(seed: int, store: Path) -> dict[str, Any]:
    """One run of the study to its end, in the terms of its answer."""
    if not _has_finished(store):
        options = ["--resume", "--store", str(store), "--set", f"sampler.seed={seed}"]
        command = [sys.executable, "-m", "cbe", "run", str(STUDY), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    results = cbe.open_store(str(store))
    found = results.best(NAME, k=1)
    by_preset = {ranked.preset: ranked for ranked in found.ranked}
    choice = by_preset.get(None)
    return {
        "sampler_seed": seed,
        "headline": found.headline,
        "verdict": choice.verdict if choice else None,
        "choice": _told(choice),
        "base": _told(by_preset["base"]),
        "paper": _told(by_preset["paper"]),
        "trials": found.counts,
        "elapsed_s": _elapsed_s(store),
    }


def _told(ranked: Ranked | None) -> dict[str, Any] | None:
    if ranked is None:
        return None
    difference = ranked.versus_base
    return {
        "error": ranked.mean,
        "test_error": ranked.test_error,
        "runs": ranked.n,
        "point": ranked.point,
        "verdict": ranked.verdict,
        "minus_base": difference and {"mean": difference.mean, "interval": difference.interval},
    }


def _has_finished(store: Path) -> bool:
    return status(Store.open(str(store)).study(NAME)).state == "finished"


def _elapsed_s(store: Path) -> float:
    return status(Store.open(str(store)).study(NAME)).elapsed_s


def measure(folder: Path, seeds: int) -> dict[str, Any]:
    where, runs = machine(), []
    for seed in range(seeds):
        runs.append(run(seed, folder / f"seed-{seed}"))
        print(f"seed {seed}: {runs[-1]['headline']} ({runs[-1]['elapsed_s']:.0f} s)", flush=True)
    verdicts = [each["verdict"] for each in runs]
    return {
        "study": STUDY.read_text(encoding="utf-8"),
        "n": seeds,
        "verdicts": {said: verdicts.count(said) for said in sorted(set(map(str, verdicts)))},
        "median_s": median(each["elapsed_s"] for each in runs),
        "runs": runs,
        "machine": where,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the stores are")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = measure(given.folder, given.seeds)
    print(json.dumps({key: results[key] for key in ("n", "verdicts", "median_s")}))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
