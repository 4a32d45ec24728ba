"""Lets on-demand machines replace spot machines that are not to be had.

    python -m cbe.cluster.fallback ~/ray_bootstrap_config.yaml HEAD:6379

Ray's autoscaler (v2, in 2.60) asks for the group with the highest `priority` again and again, however often
the cloud has refused it: only a machine that came and did not start counts as a failure there. But it reads
its file anew at every step. So this watches for refused launches of spot groups, and takes so much off a
group's priority, until a quarter of an hour after the last refusal, that the group on demand is asked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cbe.files import replace_file

POLL_S = 5.0
WAIT_S = 900.0
LESS = 1000  # what a group that is not to be had has less; nobody gives such priorities

Refusal = tuple[str, float]  # of which group, and when


def rearranged(plain: Mapping[str, Any], refused: Iterable[Refusal], now: float) -> dict[str, int]:
    """The priorities that change, by group.

    >>> file = {"available_node_types": {"spot": {"priority": 1}, "on-demand": {"priority": 0}}}
    >>> rearranged(file, [("spot", 100)], now=130)
    {'spot': -999}
    """
    recent = {group for group, when in refused if now - when < WAIT_S}
    changed = {}
    for name, group in plain["available_node_types"].items():
        priority = int(group.get("priority") or 0)
        usual = priority + LESS if priority < -LESS // 2 else priority
        wanted = usual - LESS if name in recent and usual > 0 else usual
        if wanted != priority:
            changed[name] = wanted
    return changed


def step(path: Path, refused: Iterable[Refusal], now: float) -> dict[str, int]:
    """Rewrites the autoscaler's file where refusals ask for it; what was changed."""
    plain = yaml.safe_load(path.read_text("utf-8"))
    changed = rearranged(plain, refused, now)
    if changed:
        for name, priority in changed.items():
            plain["available_node_types"][name]["priority"] = priority
        mode = path.stat().st_mode
        content = yaml.safe_dump(plain, sort_keys=False).encode()
        replace_file(path, lambda file: file.write(content))
        path.chmod(mode)
    return changed


def refusals(address: str) -> list[Refusal]:
    """The launches that the cloud has refused, as the autoscaler tells them."""
    from ray.autoscaler.v2.sdk import get_cluster_status

    failed = get_cluster_status(address).failed_launches
    return [(each.ray_node_type_name, float(each.failed_ts_s or 0)) for each in failed]


def watch(path: Path, address: str, poll_s: float = POLL_S) -> None:
    """Goes on until it is ended."""
    while True:
        try:
            for name, priority in step(path, refusals(address), time.time()).items():
                told = "is not to be had: on demand instead" if priority < 0 else "is tried again"
                print(f"{name} {told}", flush=True)
        except Exception as error:  # the autoscaler, or its file, may not be there yet
            print(f"{error!r}; trying again", file=sys.stderr, flush=True)
        time.sleep(poll_s)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="that the autoscaler reads")
    parser.add_argument("address", help="of the head, as 127.0.0.1:6379")
    given = parser.parse_args(arguments)
    watch(given.file, given.address)


if __name__ == "__main__":
    main()
