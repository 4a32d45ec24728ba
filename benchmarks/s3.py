"""A real S3 API on this machine, moto's server in a process of its own, and what it is asked."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3

from cbe.store.folder import Store

BUCKET = "cbe-bench"
_LINE = re.compile(r'"(GET|PUT|POST|DELETE|HEAD) ')
_KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass
class S3:
    """An S3 API, and how often it was asked."""

    url: str
    asked: Counter[str] = field(default_factory=Counter)

    def store(self, name: str) -> Store:
        place = self.url.removeprefix("http://")
        return Store.open(f"s3://{BUCKET}/{name}?endpoint_override={place}&scheme=http&region=us-east-1")

    def objects(self, prefix: str) -> tuple[int, int]:
        """How many there are below, and their bytes."""
        client = boto3.client("s3", endpoint_url=self.url)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
        sizes = [each["Size"] for page in pages for each in page.get("Contents", [])]
        return len(sizes), sum(sizes)


@contextmanager
def s3() -> Iterator[S3]:
    os.environ.update(_KEYS)
    command = [sys.executable, "-u", "-m", "moto.server", "-p", "0", "-H", "127.0.0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr
        place = next(filter(None, (re.search(r"http://127\S+:\d+", line) for line in server.stderr)))
        found = S3(place[0])

        def count() -> None:
            for line in server.stderr or ():
                if said := _LINE.search(line):
                    found.asked[said[1]] += 1

        threading.Thread(target=count, daemon=True).start()
        try:
            boto3.client("s3", endpoint_url=found.url).create_bucket(Bucket=BUCKET)
            yield found
        finally:
            server.terminate()


def asked(api: S3, ask: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Seconds and requests of a question, the first time by itself."""
    seconds, counts = [], Counter[str]()
    for _ in range(rounds):
        before = Counter(api.asked)
        start = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - start)
        time.sleep(0.2)  # the server's lines
        counts = api.asked - before
    return {
        "ratio": statistics.median(seconds),
        "min": min(seconds),
        "max": max(seconds),
        "first": seconds[0],
        "n": rounds,
        "requests": dict(counts),
    }
