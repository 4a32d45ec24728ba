"""How a store in a bucket answers, and what writing one costs: on a real S3 API, as studies leave it.

    python -m benchmarks.store [writing] [listing] [curve] [across] [--reports 10000000]

Rows are made up, but go the way of a study's: a flush at a time, merged on the way, merged at the end. The S3
API is moto's server, a process of its own on this machine; requests are those that it has counted. It answers
within milliseconds, one request at a time, so that requests count for more here than in a real bucket, and
waiting for them for less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from benchmarks.answers import rows_of, study_of
from benchmarks.harness import machine
from benchmarks.s3 import S3, asked, s3
from cbe.report.across import best_of_all
from cbe.report.best import best
from cbe.spec.metrics import REPORTED
from cbe.store.clock import tick
from cbe.store.compact import new_name
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.store.index import NOTHING
from cbe.store.reader import MERGED
from cbe.store.recorder import MOST_FILES, Recorder
from cbe.store.schema import METRICS, TRIALS, Table
from cbe.store.sql import select
from cbe.store.states import STATUS
from cbe.study.overview import overview, overviews, settle


def flushed(folder: StudyFolder, table: Table, batches: Iterator[pa.Table]) -> None:
    """Writes rows as a recorder does: a file a flush, merged whenever there are many."""
    files = 0
    for rows in batches:
        folder.location.at(f"{table.name}/{new_name()}").write(table.encode(rows))
        files += 1
        if files > MOST_FILES:
            files = folder.compact(table.name, grace_s=1.0)


def begun(store: Store, name: str, trials: int) -> StudyFolder:
    folder = store.study(name)
    with folder.changing():
        folder.write(STUDY_FILE, yaml.safe_dump(study_of(name, trials).to_plain()).encode())
    return folder


def ended(store: Store, folder: StudyFolder) -> None:
    folder.finish()
    said = {"state": "finished", "elapsed_s": 3600.0, "host": "bench", "beat": time.time()}
    folder.write(STATUS, json.dumps(said).encode())
    settle(store, folder.name)


def many_trials(store: Store, name: str, trials: int, seed: int, flushes: int = 10) -> None:
    """A finished study; each trial is written when it starts and when it ends."""
    folder = begun(store, name, trials)
    rows = rows_of(study_of(name, trials), trials // 5, seed)

    def batches() -> Iterator[pa.Table]:
        size = -(-trials // (flushes // 2))
        at, state = rows.schema.get_field_index("state"), TRIALS.schema.field("state")
        for start in range(0, trials, size):
            part = rows.slice(start, size)
            old = part.set_column(at, state, pa.array(["running"] * len(part)))
            yield old.set_column(
                2, TRIALS.schema.field("revision"), pa.array([tick() for _ in range(len(part))])
            )
            yield part.set_column(
                2, TRIALS.schema.field("revision"), pa.array([tick() for _ in range(len(part))])
            )

    flushed(folder, TRIALS, batches())
    ended(store, folder)


def many_reports(store: Store, name: str, reports: int, steps: int, at_once: int = 100) -> None:
    """A finished study of long trials, of which so many run at once."""
    folder, trials, draw = begun(store, name, 100), reports // steps, np.random.default_rng(0)

    def batches() -> Iterator[pa.Table]:
        for first in range(0, trials, at_once):
            names = [f"t{number:06d}" for number in range(first, min(trials, first + at_once))]
            for start in range(0, steps, 250):
                count = min(250, steps - start)
                rows = len(names) * count
                same = {"study": pa.array([name] * rows), "trial": pa.array(np.repeat(names, count))}
                same["step"] = pa.array(np.tile(np.arange(start, start + count), len(names)))
                same["revision"] = pa.array(tick() + np.arange(rows))
                figures = {each: pa.array(draw.random(rows).round(5)) for each in REPORTED[:8]}
                columns = {**same, **figures}
                arrays = [columns.get(each.name, pa.nulls(rows, each.type)) for each in METRICS.schema]
                yield pa.Table.from_arrays(arrays, schema=METRICS.schema)

    flushed(folder, METRICS, batches())
    folder.append("trials", [{"trial": f"t{number:06d}", "state": "completed"} for number in range(trials)])
    ended(store, folder)


def recorded(store: Store, name: str, trials: int, at_once: int = 50, reports: int = 20) -> None:
    """A study through the real recorder: some trials at once, a flush for each round of reports."""
    folder = begun(store, name, trials)
    recorder = Recorder(folder, flush_s=3600)
    for first in range(0, trials, at_once):
        names = [f"t{number:04d}" for number in range(first, first + at_once)]
        for trial in names:
            recorder.trial(trial, state="running", role="search", params='{"lr": 0.1}', seed=0)
            recorder.event("started", trial)
        for step in range(1, reports + 1):
            for trial in names:
                recorder.metrics(trial, {"step": step, "loss": 1 / step, "validation_error": 0.1})
                recorder.trial(trial, step=step)
            recorder.flush()
            recorder._compact()
        for trial in names:
            recorder.trial(trial, state="completed")
            recorder.event("completed", trial)
        recorder.flush()
    recorder.finish()


def peak_mib(question: str, store: Store) -> float:
    """What a process of its own takes at most, its code included."""
    code = f"""
import sys
import pyarrow.compute as pc
from cbe.store.folder import Store
from cbe.store.sql import select
store = Store.open(sys.argv[1])
{question}
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    out = subprocess.run([sys.executable, "-c", code, store.uri], check=True, capture_output=True, text=True)
    return int(out.stdout.split()[1]) / 1024


def listing(api: S3, studies: int, rounds: int) -> dict[str, Any]:
    """Small finished studies, put there as they are, and noted in the index a few hundred at a time."""
    store = api.store("many")
    rows = rows_of(study_of("s00000", 10), 2, 0)
    files = {"status.json": b'{"state": "finished", "elapsed_s": 3600}'}
    files[f"trials/{new_name(MERGED)}"] = TRIALS.encode(rows, ["before"])

    def put(number: int) -> None:
        folder = store.study(f"s{number:05d}")
        for name, content in files.items():
            folder.write(name, content)
        folder.write(STUDY_FILE, yaml.safe_dump(study_of(folder.name, 10).to_plain()).encode())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(studies)))
    found = overview(store, "s00000")
    for start in range(0, studies, 500):
        names = [f"s{number:05d}" for number in range(start, min(studies, start + 500))]
        rows = ((name, json.dumps(replace(found, study=name).to_plain())) for name in names)
        said = [(name, NOTHING, {"state": found.state, "stamp": "", "overview": row}) for name, row in rows]
        store.index.note(said)
    for number in range(20):  # what drivers add
        folder = store.study(f"s{number:05d}")
        with folder.changing():
            folder.write("status.json", files["status.json"])
        settle(store, folder.name)
    every = asked(api, lambda: overviews(store), rounds)
    assert len({each.study for each in overviews(store)}) == studies
    one = asked(api, lambda: best(store.study("s00007")), rounds)
    return {"studies": studies, "list_s": every, "one_s": one}


def across(api: S3, trials: int, studies: int, rounds: int) -> dict[str, Any]:
    store = api.store("trials")
    with tempfile.TemporaryDirectory() as aside:
        local = Store.open(aside)
        for number in range(studies):
            many_trials(local, f"s{number:04d}", trials // studies, number)
        on_disk = asked(api, lambda: best_of_all(local, 3), rounds)
        for name in local.names():  # a merged file is the same wherever it was made
            for entry in local.study(name).location.entries(recursive=True):
                if not entry.is_folder:
                    store.study(name).write(entry.name, local.study(name).read(entry.name) or b"")
    overviews(store)
    return {
        "trials": trials,
        "studies": studies,
        "all_s": asked(api, lambda: best_of_all(store, 3), rounds),
        "all_on_disk_s": on_disk,
        "one_s": asked(api, lambda: best(store.study("s0007")), rounds),
        "objects, bytes": api.objects("trials"),
    }


def curve(api: S3, reports: int, steps: int, rounds: int) -> dict[str, Any]:
    """One trial's curve out of so many reports of one study."""
    store = api.store("reports")
    start = time.perf_counter()
    many_reports(store, "long", reports, steps)
    built_s, trial = time.perf_counter() - start, f"t{reports // steps // 2:06d}"
    folder, query = store.study("long"), f"select * from metrics where trial = '{trial}'"
    assert len(select(store, query, ["long"])) == steps
    where = f'store.study("long").table("metrics", where=pc.field("trial") == "{trial}")'
    return {
        "reports": reports,
        "built_s": built_s,
        "curve_s": asked(api, lambda: folder.table("metrics", where=pc.field("trial") == trial), rounds),
        "sql_s": asked(api, lambda: select(store, query, ["long"]), rounds),
        "curve_mib": peak_mib(where, store),
        "sql_mib": peak_mib(f'select(store, "{query}", ["long"])', store),
        "objects, bytes": api.objects("reports"),
    }


def writing(api: S3, trials: int) -> dict[str, Any]:
    store, before = api.store("written"), Counter(api.asked)
    start = time.perf_counter()
    recorded(store, "one", trials)
    seconds = time.perf_counter() - start
    time.sleep(0.5)
    files, size = api.objects("written/one")
    return {
        "trials": trials,
        "s": seconds,
        "requests": dict(api.asked - before),
        "files": files,
        "bytes": size,
    }


def measure(
    parts: Sequence[str] = (),
    studies: int = 10_000,
    trials: int = 1_000_000,
    reports: int = 10_000_000,
    written: int = 1000,
    rounds: int = 5,
) -> dict[str, Any]:
    every: dict[str, Callable[[S3], dict[str, Any]]] = {
        "writing": lambda api: writing(api, written),
        "listing": lambda api: listing(api, studies, rounds),
        "curve": lambda api: curve(api, reports, 10_000, rounds),
        "across": lambda api: across(api, trials, 200, rounds),
    }
    found: dict[str, Any] = {"machine": machine()}
    for name in parts or every:
        with s3() as api:  # a server of its own for each: it keeps all in memory
            found[name] = every[name](api)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="of writing, listing, curve and across; all")
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--reports", type=int, default=10_000_000)
    parser.add_argument("--written", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
