"""Search strategies replayed on recorded landscapes: what they find, for how much, and whether verdicts hold.

    python -m benchmarks.search                    # the held-out half, as in studies/records/search.json
    python -m benchmarks.search --half development # to decide about a design
    python -m benchmarks.search --only verdicts    # or suggestion, or some contenders
    pip install -e '.[bench]'                      # NePS's PriorBand, else left out

All contenders first train the paper's config and the base. Compute is counted in steps of all trials. The
true error of a config is its mean over all recorded pairs; a target is reached when the config that a
strategy would choose is that good. A development landscape has half of the configs, and its searches see half
of the pairs; the final one has the others.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: every core has a replay of its own

# isort: split
import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from rich.console import Console
from rich.table import Table

from benchmarks.harness import machine
from benchmarks.landscape import FOLDER
from benchmarks.replay import BASE, PAPER, Draw, Landscape, Replay
from cbe.spec import StudyConfig
from cbe.spec.search import applicable, order
from cbe.spec.study import PAIRS
from cbe.study.confirmation import runs_of, winners
from cbe.study.search.sampling import Sampling
from cbe.verdicts import compare

TRIALS = 60  # of the searches whose course is followed
REPLICATES = 100
TARGETS = (0.10, 0.05, 0.02)  # the true error that so large a share of the recorded configs has
HALVES = {"development": 0, "final": 1}
PARTS = ("verdicts", "suggestion")  # that can be measured without the contenders

Course = list[tuple[int, float]]  # steps, and the true error of what is chosen by then
Contender = Callable[[Landscape, int], Course]


def ours(land: Landscape, seed: int, **sections: Any) -> Course:
    """A study with these sections, on the real agenda, sampler and scheduler."""
    study = _study(land, seed, budget={"trials": TRIALS}, confirm={"configs": 1, "runs": 0}, **sections)
    replay, course = Replay(study, land, seed), []
    for spent in replay.run():
        if (config := _chosen(study, replay)) is not None:
            course.append((spent, float(land.truth[config])))
    return course


def _study(land: Landscape, seed: int, **sections: Any) -> StudyConfig:
    plain = {**land.study.to_plain(), "search": "default", "scheduler": {}, **sections}
    if plain["scheduler"] == {} and len(land.search_pairs) < PAIRS:  # no more than are on record
        plain["scheduler"] = {"pairs": len(land.search_pairs)}
    plain["sampler"] = {"name": sections.get("sampler", "prior"), "seed": seed}
    return StudyConfig.model_validate(plain)


def _chosen(study: StudyConfig, replay: Replay) -> int | None:
    """The recorded config that stands for the study's choice so far."""
    rows = list(replay.ledger.rows.values())
    if best := winners(study, rows):
        return replay.stands_for[best[0]["config_id"]]
    fixed = [row for row in rows if row["preset"] and row["state"] == "completed"]
    return replay.stands_for[min(fixed, key=lambda row: row["objective"])["config_id"]] if fixed else None


def wrong_prior(land: Landscape) -> dict[str, Any]:
    """The default search with its beliefs at the far end of each range, and firm."""
    plain: dict[str, Any] = {}
    for key, parameter in _study(land, 0).search.items():
        assert parameter.prior is not None
        is_high = parameter.scale != "category" and parameter.to_unit(parameter.prior.at) > 0.5
        far = parameter.listed[0 if is_high else -1]
        # On digits low thresholds and large weights of the unlabeled loss are best: these are the worst.
        far = {"method.threshold": 0.99, "loss.weights.unlabeled": 0.25}.get(key, far)
        plain[key] = {**parameter.model_dump(), "prior": {"at": far, "confidence": "high"}}
    return plain


def hyperband(land: Landscape, seed: int) -> Course:
    """Optuna's TPE with its HyperbandPruner."""
    study, draw = _study(land, seed), Draw(land, seed)
    evaluations = len(land.steps)
    searched = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.HyperbandPruner(min_resource=2, max_resource=evaluations, reduction_factor=3),
    )
    spent, course, best = _fixed(land, draw)
    while spent < TRIALS * land.steps[-1]:
        trial, point = searched.ask(), {}
        for key in order(study.search):
            if applicable(key, study.search[key], study.values(point)):
                point[key] = study.search[key].suggest(trial, key)
        config = draw.config(point)
        for number, report in enumerate(draw.curve(config, 0), 1):
            trial.report(report["validation_error"], number)
            if number < evaluations and trial.should_prune():
                searched.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            searched.tell(trial, report["validation_error"])
            best = min(best, (report["validation_error"], config))
        spent += int(report["step"])
        course.append((spent, float(land.truth[best[1]])))
    return course


def _fixed(land: Landscape, draw: Draw) -> tuple[int, Course, tuple[float, int]]:
    """Steps, course and choice after the two fixed configs."""
    best = min((draw.curve(config, 0)[-1]["validation_error"], config) for config in (PAPER, BASE))
    spent = 2 * land.steps[-1]
    return spent, [(spent, float(land.truth[best[1]]))], best


def priorband(land: Landscape, seed: int) -> Course:
    """NePS's PriorBand over Hyperband, whose trials go on from where they were stopped."""
    import torch
    from neps.optimizers.algorithms import priorband as algorithm
    from neps.optimizers.ask_and_tell import AskAndTell
    from neps.space import HPOCategorical, HPOFloat, HPOInteger, SearchSpace

    torch.manual_seed(seed)
    np.random.seed(seed)
    study, draw = _study(land, seed), Draw(land, seed)
    space: dict[str, Any] = {"fidelity": HPOInteger(2, len(land.steps), is_fidelity=True)}
    for key, parameter in study.search.items():
        believed: dict[str, Any] = {}
        if parameter.prior:
            believed = {"prior": parameter.prior.at, "prior_confidence": parameter.prior.confidence}
        if parameter.scale == "category":
            space[key] = HPOCategorical(list(parameter.listed), **believed)
        else:
            kind: Any = HPOInteger if parameter.kind == "int" else HPOFloat
            space[key] = kind(*parameter.listed, log=parameter.scale == "log", **believed)
    searched = AskAndTell(algorithm(SearchSpace(space)))
    spent, course, best = _fixed(land, draw)
    reached: dict[str, int] = {}
    while spent < TRIALS * land.steps[-1]:
        trial = searched.ask()
        values = dict(trial.config)
        fidelity = int(values.pop("fidelity"))
        name = trial.metadata.id.rsplit("_", 1)[0]
        config = draw.config({k: v for k, v in values.items() if _applies(study, k, values)})
        curve = draw.curve(config, 0)
        error = curve[fidelity - 1]["validation_error"]
        before = land.steps[reached[name] - 1] if name in reached else 0
        spent, reached[name] = spent + land.steps[fidelity - 1] - before, fidelity
        searched.tell(trial, error)
        if fidelity == len(land.steps):
            best = min(best, (error, config))
        course.append((spent, float(land.truth[best[1]])))
    return course


def _applies(study: StudyConfig, key: str, values: Mapping[str, Any]) -> bool:
    return applicable(key, study.search[key], study.values(values))


CONTENDERS: dict[str, Contender] = {
    "random at full length": partial(ours, scheduler="none", sampler="random"),
    "ASHA + TPE": partial(ours, scheduler={"name": "asha", "grace": 0.2}, sampler="tpe"),
    "Optuna: TPE + HyperbandPruner": hyperband,
    "NePS: PriorBand": priorband,
    "race + prior (the default)": ours,
    "race + TPE": partial(ours, sampler="tpe"),
    "prior at full length": partial(ours, scheduler="none"),
    "TPE at full length": partial(ours, scheduler="none", sampler="tpe"),
}


def _wrong(land: Landscape, seed: int) -> Course:
    return ours(land, seed, search=wrong_prior(land))


CONTENDERS["race + prior, a wrong prior"] = _wrong


@cache
def _landscape(name: str, half: str) -> Landscape:
    return Landscape(name, HALVES[half])


def _course(job: tuple[str, str, str, int]) -> Course:
    name, half, contender, seed = job
    return CONTENDERS[contender](_landscape(name, half), seed)


def verdicts_of(job: tuple[str, str, int]) -> list[tuple[str, float]]:
    """What a study at the default budget says of each confirmed config, and how it differs truly."""
    name, half, seed = job
    land = _landscape(name, half)
    study = _study(land, seed, budget={}, confirm={})
    replay = Replay(study, land, seed)
    for _ in replay.run():
        pass
    confirmed = [row for row in replay.ledger.rows.values() if row["role"] == "confirm"]
    base = runs_of(row for row in confirmed if row["preset"] == "base")
    found = []
    for config_id in {row["config_id"] for row in confirmed if row["preset"] != "base"}:
        runs = runs_of(row for row in confirmed if row["config_id"] == config_id)
        judged = compare(study, runs, base, land.study.data.validation)
        true = float(land.truth[replay.stands_for[config_id]] - land.truth[BASE])
        found.append((judged.said if judged else "undecided", true))
    return found


def is_wrong(said: str, true: float, margin: float) -> bool:
    if said == "equivalent":
        return abs(true) >= margin
    return (said == "better" and true >= 0) or (said == "worse" and true <= 0)


def suggestion_ms(trials: int = 200) -> float:
    """Median time of the driver for a suggestion after so many trials."""
    land = _landscape("digits", "development")
    study = _study(land, 0, budget={"trials": trials + 20})
    sampling = Sampling(study, optuna.storages.InMemoryStorage(), {}, "")
    seconds, rng = [], np.random.default_rng(0)
    for number in range(trials + 20):
        began = time.perf_counter()
        asked = sampling.ask(f"t{number:04d}", study.pairs[0])
        seconds.append(time.perf_counter() - began)
        assert asked.number is not None
        sampling.report(asked.number, 300, 0.1)
        sampling.tell(asked.number, "completed", [0.05 + 0.05 * float(rng.random())])
    return 1000 * statistics.median(seconds[-20:])


def chosen_parts(only: Collection[str]) -> tuple[list[str], list[str]]:
    """The contenders and the parts beside them that are asked for; all where nothing is."""
    words = [word for word in only if word not in PARTS]
    return (
        [name for name in CONTENDERS if not only or any(word in name for word in words)],
        [part for part in PARTS if not only or part in only],
    )


def measure(names: list[str], half: str, replicates: int, only: Collection[str]) -> dict[str, Any]:
    chosen, parts = chosen_parts(only)
    chosen = [name for name in chosen if name != "NePS: PriorBand" or _has_neps()]
    results: dict[str, Any] = {"half": half, "replicates": replicates, "machine": machine(), "landscapes": {}}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name in names:
            land = _landscape(name, half)
            others = [n for n in range(len(land.configs)) if n not in (PAPER, BASE)]
            targets = [float(np.quantile(land.truth[others], share)) for share in TARGETS]
            table = {}
            for contender in chosen:
                jobs = [(name, half, contender, seed) for seed in range(replicates)]
                table[contender] = _summary(list(pool.map(_course, jobs, chunksize=5)), targets)
                print(name, contender, json.dumps(table[contender]), flush=True)
            jobs_of_verdicts = [(name, half, s) for s in range(replicates if "verdicts" in parts else 0)]
            said = [each for found in pool.map(verdicts_of, jobs_of_verdicts) for each in found]
            results["landscapes"][name] = {
                "configs": len(land.configs),
                "pairs": int(land.error.shape[1]),
                "rule": land.check(),
                "base": float(land.truth[BASE]),
                "paper": float(land.truth[PAPER]),
                "targets": targets,
                "contenders": table,
                "verdicts": _verdicts(said) if said else None,
            }
    results["suggestion_ms"] = suggestion_ms() if "suggestion" in parts else None
    return results


def _has_neps() -> bool:
    try:
        import neps  # noqa: F401
    except ImportError:
        print("NePS is not installed and left out: pip install -e '.[bench]'")
        return False
    return True


def _summary(courses: list[Course], targets: list[float]) -> dict[str, Any]:
    """Steps to each target, those that never reach it counting as without end, and the end."""
    found: dict[str, Any] = {"steps": []}
    for target in targets:
        hits = [
            next((spent for spent, error in course if error <= target), float("inf")) for course in courses
        ]
        low, middle, high = np.quantile(hits, [0.25, 0.5, 0.75], method="nearest")
        reached = float(np.mean(np.isfinite(hits)))
        found["steps"].append(
            {"median": _number(middle), "quartiles": [_number(low), _number(high)], "reached": reached}
        )
    ends = [course[-1][1] for course in courses]
    found["end"] = {"median": float(np.median(ends)), "quartiles": np.quantile(ends, [0.25, 0.75]).tolist()}
    found["spent"] = float(np.median([course[-1][0] for course in courses]))
    return found


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _verdicts(said: list[tuple[str, float]]) -> dict[str, Any]:
    margin = 0.01
    wrong = sum(is_wrong(word, true, margin) for word, true in said)
    large = [word for word, true in said if abs(true) >= 0.02]
    decided = [word != "undecided" for word in large]
    return {
        "said": dict(Counter(word for word, _ in said)),
        "wrong": wrong / len(said),
        "n": len(said),
        "of 2 points or more": {"n": len(large), "decided": float(np.mean(decided)) if large else None},
    }


def show(results: dict[str, Any]) -> Iterator[Table | str]:
    for name, found in results["landscapes"].items():
        points = ", ".join(f"{100 * target:.2f} %" for target in found["targets"])
        table = Table(
            title=f"{name}, {results['half']} half: steps until the choice's true error is {points}"
        )
        for column in (
            "contender",
            *(f"{100 * target:.2f} %" for target in found["targets"]),
            "at the end, %",
            "steps",
        ):
            table.add_column(column, justify="left" if column == "contender" else "right")
        for contender, row in found["contenders"].items():
            cells = [_cell(each) for each in row["steps"]]
            low, high = row["end"]["quartiles"]
            end = f"{100 * row['end']['median']:.2f} ({100 * low:.2f} to {100 * high:.2f})"
            table.add_row(contender, *cells, end, f"{row['spent']:,.0f}")
        if found["contenders"]:
            yield table
        if (verdicts := found["verdicts"]) is None:
            continue
        large = verdicts["of 2 points or more"]
        yield f"rule: rank correlation {found['rule']['rank correlation']:.2f} on configs left out"
        yield f"verdicts at the default budget, n = {verdicts['n']}: {verdicts['said']}"
        yield f"wrong: {100 * verdicts['wrong']:.1f} %; true differences of 2 points or more: {large}\n"
    if results["suggestion_ms"] is not None:
        yield f"driver: {results['suggestion_ms']:.1f} ms for a suggestion after 200 trials"


def _cell(found: Mapping[str, Any]) -> str:
    low, high = (f"{each:,.0f}" if each is not None else "–" for each in found["quartiles"])
    middle = f"{found['median']:,.0f}" if found["median"] is not None else "–"
    return f"{middle} ({low} to {high}), {100 * found['reached']:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = sorted(path.stem for path in FOLDER.glob("*.parquet"))
    parser.add_argument("landscapes", nargs="*", default=known)
    parser.add_argument("--half", choices=list(HALVES), default="final")
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument(
        "--only", action="append", help=f"{', '.join(PARTS)}, or contenders whose name has this in it"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = measure(given.landscapes, given.half, given.replicates, given.only or ())
    console = Console(width=150)
    for part in show(results):
        console.print(part)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
