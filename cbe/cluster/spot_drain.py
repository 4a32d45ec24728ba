"""Watches for the notice by which a cloud takes a spot machine back, and then drains the Ray node on it.

    python -m cbe.cluster.spot_drain aws|gcp|azure HEAD:6379

Ray then starts nothing more there, and trials have until the machine is gone to write a checkpoint. On a
machine on demand no notice ever comes. Standard library alone: it must come up whatever else is broken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

POLL_S = 5.0  # as AWS advises; the shortest notice is 30 s
TIMEOUT_S = 2.0
GONE_S = 30  # from a notice that does not say when

_METADATA = {
    "aws": "http://169.254.169.254",
    "gcp": "http://metadata.google.internal",
    "azure": "http://169.254.169.254",
}
_open = build_opener(ProxyHandler({})).open  # a proxy would ask its own machine


@dataclass(frozen=True)
class SpotNotice:
    """The machine is taken back in so many seconds."""

    text: str
    seconds: int


def aws(base: str) -> SpotNotice | None:
    """A spot instance's action, by version 2 of the metadata service."""
    token = _ask(
        Request(
            f"{base}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        )
    )
    if token is None:
        return None
    found = _ask(
        Request(f"{base}/latest/meta-data/spot/instance-action", headers={"X-aws-ec2-metadata-token": token})
    )
    if found is None:
        return None
    about = json.loads(found)
    return SpotNotice(f"AWS will {about['action']} it", _until(datetime.fromisoformat(about["time"])))


def gcp(base: str) -> SpotNotice | None:
    """Whether Compute Engine has begun to preempt the machine."""
    url = f"{base}/computeMetadata/v1/instance/preempted"
    found = _ask(Request(url, headers={"Metadata-Flavor": "Google"}))
    return SpotNotice("Google preempts it", GONE_S) if found and found.strip() == "TRUE" else None


def azure(base: str) -> SpotNotice | None:
    """A scheduled event of the kind Preempt."""
    url = f"{base}/metadata/scheduledevents?api-version=2020-07-01"
    found = _ask(Request(url, headers={"Metadata": "true"}))
    for event in json.loads(found)["Events"] if found else ():
        if event["EventType"] == "Preempt":
            when = event.get("NotBefore")  # empty once it has begun
            return SpotNotice("Azure evicts it", _until(parsedate_to_datetime(when)) if when else GONE_S)
    return None


CLOUDS: dict[str, Callable[[str], SpotNotice | None]] = {"aws": aws, "gcp": gcp, "azure": azure}


def watch(cloud: str, base: str | None = None, poll_s: float = POLL_S) -> SpotNotice:
    """Waits for the notice."""
    while True:
        try:
            notice = CLOUDS[cloud](base or _METADATA[cloud])
        except (URLError, OSError, ValueError, KeyError) as error:  # the service restarts, too
            print(f"metadata of {cloud}: {error!r}; trying again", file=sys.stderr, flush=True)
            notice = None
        if notice:
            return notice
        time.sleep(poll_s)


def drain(address: str, notice: SpotNotice, poll_s: float = POLL_S) -> bool:
    """Drains the Ray node of this machine; tries until the machine is gone."""
    end = time.monotonic() + notice.seconds
    while True:
        left = max(0, round(end - time.monotonic()))
        nodes = node_ids(address)
        codes = [subprocess.run(_command(address, node, notice.text, left)).returncode for node in nodes]
        if codes and not any(codes):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(poll_s)


def node_ids(address: str) -> list[str]:
    """The workers of a cluster on this machine, which is one, by the command lines of their raylets.

    `ray drain-node` finds the node by itself only from within Ray's own processes.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        options = dict(word.partition("=")[::2] for word in words)
        of_it = program.endswith("/raylet") and options.get("--gcs-address") == address
        if of_it and "--node_id" in options and "--head" not in options:
            found.append(options["--node_id"])
    return found


def _command(address: str, node: str, text: str, seconds: int) -> Sequence[str]:
    return [
        str(Path(sys.executable).with_name("ray")),
        "drain-node",
        f"--address={address}",
        f"--node-id={node}",
        "--reason=DRAIN_NODE_REASON_PREEMPTION",
        f"--reason-message={text}",
        f"--deadline-remaining-seconds={seconds}",
    ]


def _ask(request: Request) -> str | None:
    """The answer; None where there is nothing to tell."""
    try:
        with _open(request, timeout=TIMEOUT_S) as answer:
            text: str = answer.read().decode()
            return text
    except HTTPError as error:
        if error.code == 404:
            return None
        raise


def _until(time_: datetime) -> int:
    aware = time_ if time_.tzinfo else time_.replace(tzinfo=UTC)
    return max(0, round((aware - datetime.now(UTC)).total_seconds()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cloud", choices=CLOUDS)
    parser.add_argument("address", help="of the head, as 10.0.0.1:6379")
    parser.add_argument("--metadata", help="where to ask, instead of the cloud's own address")
    parser.add_argument("--poll", type=float, default=POLL_S, help="seconds between two looks")
    given = parser.parse_args(arguments)
    notice = watch(given.cloud, given.metadata, given.poll)
    print(f"{notice.text} in {notice.seconds} s: draining", flush=True)
    return 0 if drain(given.address, notice, given.poll) else 1


if __name__ == "__main__":
    sys.exit(main())
