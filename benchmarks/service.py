"""What 200 readers of the service cost: its answers' times, and how much slower a study runs beside them.

    python -m benchmarks.service [--readers 200] [--rounds 4] [--seconds 20]

A study with a trial on each core runs on a real cluster. A third of the readers ask for the list every two
seconds, a third for the best config of a study, and a third listen to the running study's events. Stretches
with and without readers take turns within one run, and the steps a second of one are divided by those of the
other. The readers are on the same machine, in a process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from benchmarks.answers import fill
from benchmarks.harness import machine
from cbe.service.queue.embedded_ray import started
from cbe.store.folder import Store, StudyFolder

RUNNING = "running"
OTHERS, TRIALS = 20, 100  # studies beside the one that runs, and trials of each
EVERY_S = 2.0  # between two questions of a reader
SETTLE_S = 5.0  # at the start of a stretch, which is not counted

Seen = dict[str, list[float]]


async def _ask(
    url: str, path: str, seen: list[float], errors: list[str], ends: float, delay_s: float
) -> None:
    """One reader with a connection of its own, which stays open."""
    await asyncio.sleep(delay_s)
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    request = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode()
    try:
        while time.time() < ends:
            begun = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            seen.append(time.perf_counter() - begun)
            if not head.startswith(b"HTTP/1.1 200"):
                errors.append(head.split(b"\r\n")[0].decode())
            await asyncio.sleep(EVERY_S)
    except (OSError, asyncio.IncompleteReadError) as error:
        errors.append(f"{path}: {error!r}")
    finally:
        writer.close()


async def _listen(url: str, path: str, seen: list[float], errors: list[str], ends: float) -> None:
    """One reader of events; what it sees are the bytes of each."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    try:
        if not (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200"):
            errors.append(f"{path}: refused")
        with suppress(TimeoutError):
            async with asyncio.timeout(ends - time.time()):
                while part := await reader.read(1 << 16):
                    seen.append(len(part))
                errors.append(f"{path}: the events ended")
    except (OSError, asyncio.IncompleteReadError) as error:
        errors.append(f"{path}: {error!r}")
    finally:
        writer.close()


async def _readers(url: str, count: int, seconds: float) -> tuple[Seen, list[str]]:
    seen: Seen = defaultdict(list)
    errors: list[str] = []
    ends = time.time() + seconds
    tasks = []
    for number in range(count):
        delay_s = EVERY_S * number / count
        if number % 3 == 0:
            tasks.append(_ask(url, "/api/studies", seen["list"], errors, ends, delay_s))
        elif number % 3 == 1:
            tasks.append(
                _ask(url, f"/api/studies/s{number % OTHERS}/best", seen["best"], errors, ends, delay_s)
            )
        else:
            tasks.append(_listen(url, f"/api/studies/{RUNNING}/events", seen["events"], errors, ends))
    await asyncio.gather(*tasks)
    return dict(seen), errors


def _read(url: str, count: int, seconds: float, answer: Any) -> None:
    answer.send("ready")  # what it loads takes seconds, which are not the readers'
    answer.send(asyncio.run(_readers(url, count, seconds)))


def read(url: str, count: int, seconds: float) -> tuple[float, Seen, list[str]]:
    """So many readers for so long, in a process of their own: when they began, and what they saw."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_read, args=(url, count, seconds, theirs))
    process.start()
    ours.recv()
    begun = time.time()
    seen, errors = ours.recv()
    process.join()
    return begun, seen, errors


def rate(folder: StudyFolder, begun: float, ended: float) -> float:
    """Steps a second of all trials between two times, by their own reports."""
    reports: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for row in folder.table("metrics", ["trial", "step", "time"]).to_pylist():
        if begun <= (at := row["time"].timestamp()) <= ended:
            reports[row["trial"]].append((at, row["step"]))
    total = 0.0
    for found in reports.values():
        (first, low), (last, high) = min(found), max(found)
        total += (high - low) / (last - first) if last > first else 0.0
    return total


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, StudyFolder]]:
    """A service on a cluster of its own, with studies that are done and one that runs."""
    store = Store.open(str(folder / "store"))
    for number in range(OTHERS):
        fill(store, f"s{number}", TRIALS, seed=number)
    head, port = started(str(folder), cpus=2), 18321
    command = [sys.executable, "-m", "cbe", "serve", "--store", store.uri, "--port", str(port)]
    service = subprocess.Popen([*command, "--ray", head.address], cwd=folder, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        _until(lambda: httpx.get(f"{url}/healthz").status_code == 200)
        plain = {
            "name": RUNNING,
            "data": {"source": "digits", "labels": 40, "validation": 200},
            "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
            "training": {"steps": 100_000, "eval_every": 10, "lr": 0.06, "ema": 0.98},
            "scheduler": "none",
            "confirm": "off",
            "budget": {"trials": 2},
        }
        sent = httpx.post(
            f"{url}/api/studies", content=yaml.safe_dump(plain), headers={"content-type": "application/yaml"}
        )
        sent.raise_for_status()
        study = store.study(RUNNING)
        _until(lambda: len(set(study.table("metrics", ["trial"])["trial"].to_pylist())) == 2)
        yield url, study
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait()
        head.terminate(patience_s=10.0)


def _until(holds: Any, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if holds():
                return
        time.sleep(0.2)
    raise SystemExit("the service or the study did not come up")


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    seen: Seen = defaultdict(list)
    errors: list[str] = []
    ratios = []
    aside = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its driver may write to the last
    with aside as place, running(Path(place)) as (url, study):
        for _ in range(options.rounds):
            rates = {}
            for readers in (0, options.readers):
                begun = time.time()
                if readers:
                    begun, found, wrong = read(url, readers, options.seconds)
                    errors += wrong
                    for kind, values in found.items():
                        seen[kind] += values
                else:
                    time.sleep(options.seconds)
                rates[readers] = rate(study, begun + SETTLE_S, begun + options.seconds)
            ratios.append(rates[options.readers] / rates[0])
            print(
                f"steps a second alone {rates[0]:.1f}, beside readers {rates[options.readers]:.1f}",
                flush=True,
            )
    print(machine())
    for kind in ("list", "best"):
        values = [1000 * value for value in seen[kind]]
        p50, p99 = quantile(values, 0.5), quantile(values, 0.99)
        print(f"{kind}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, n = {len(values)}")
    print(f"events: {len(seen['events'])} received; errors of all readers: {len(errors)}")
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    shares = f"{middle:.3f} ({low:.3f}..{high:.3f}, n = {len(ratios)})"
    print(f"steps a second beside {options.readers} readers over alone: {shares}")
    if errors:
        raise SystemExit(json.dumps(errors[:5]))


if __name__ == "__main__":
    main()
