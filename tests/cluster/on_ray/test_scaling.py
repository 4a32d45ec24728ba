"""Studies on a cluster that grows: Ray's own autoscaler, machines that come, go, and are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbe.cluster.spot_drain import node_ids
from cbe.errors import InputError
from cbe.report.machines import machines
from cbe.report.page.evidence import gather
from cbe.report.page.panels import panels
from cbe.spec import StudyConfig
from cbe.store.folder import StudyFolder
from cbe.study.progress import Progress
from tests.cluster.bodies import counted, held, last_alone
from tests.cluster.conftest import IDLE_S, Growing
from tests.study.bodies import bowl
from tests.study.conftest import curve, meanwhile, rows, run, study
from tests.study.on_ray.test_faults import unbroken
from tests.waiting import until

EVERY = 20


def on_cards(**sections: Any) -> StudyConfig:
    """A study whose trials want a card each, of a few seconds."""
    given: dict[str, Any] = {
        "resources": {"gpus": 1, "concurrent": None},
        "storage": {"shared": True},
        "training": {"steps": 200, "eval_every": EVERY, "lr": 0.03},
        "scheduler": "none",
    }
    for name, section in sections.items():
        given[name] = {**given.get(name, {}), **section}
    return study(**given)


def events(folder: StudyFolder, kind: str) -> list[dict[str, Any]]:
    found = folder.table("events").sort_by("time").to_pylist()
    return [{**row, **json.loads(row["details"])} for row in found if row["kind"] == kind]


def repeated(log: Path) -> list[int]:
    """Of each process that took over from another: the steps that it trained again."""
    reached: dict[str, int] = {}
    found = []
    for line in map(json.loads, log.read_text().splitlines()):
        if "begins" in line:
            if line["trial"] in reached:
                found.append(reached[line["trial"]] - line["begins"])
        else:
            reached[line["trial"]] = line["step"]
    return found


def test_machines_come_for_trials_and_go_when_none_is_left(cards: Growing, tmp_path: Path) -> None:
    most: list[int] = []

    def look(progress: Progress, over: threading.Event) -> None:
        while not over.wait(0.2):
            most.append(len(cards.nodes()))

    until(lambda: not cards.nodes(), what="an empty cluster")
    config = on_cards(budget={"trials": 3}, resources={"concurrent": 2})
    progress, folder = run(config, tmp_path, address=cards.address, watch=meanwhile(look), body=last_alone)
    assert progress.stage == "finished"
    assert Counter(row["state"] for row in rows(folder).values()) == {"completed": 3}
    until(lambda: not cards.nodes(), what="an empty cluster")

    seen = machines(folder)
    assert seen is not None
    assert seen.rows[0]["nodes"] == 0
    assert seen.most == max(most) == 2
    for row in seen.rows:  # never more than trials could use
        assert row["nodes"] + row["starting"] <= 2
    last = [row for row in seen.rows if row["running"]][-1]  # of three trials the third is left alone
    assert (last["running"], last["pending"], last["nodes"]) == (1, 0, 1)
    assert len(seen.came_s) == 2
    assert len(seen.kept_s) == 1
    assert min(seen.kept_s) > 0.8 * IDLE_S
    assert seen.lost == 0
    print(seen.sentence())
    folder.write("study.yaml", yaml.safe_dump(config.to_plain()).encode())
    drawn = {panel.id: panel for panel in panels(gather(folder))}
    assert "2 machines at most" in drawn["machines"].note
    assert drawn["machines"].figure is not None
    groups = {each["group"] for each in events(folder, "node came")}
    assert groups == {"small"}  # whose cards are large enough


@pytest.mark.chaos
def test_ten_lost_machines_cost_no_retry_and_one_interval_each(cards: Growing, tmp_path: Path) -> None:
    dice, killed = random.Random(7), []
    log = tmp_path / "log"

    def kill(progress: Progress, over: threading.Event) -> None:
        seen = 0
        while len(killed) < 10 and not over.wait(0.2):
            reports = log.read_text().count('"step"') if log.exists() else 0
            live = cards.nodes()
            if reports - seen < 3 or not live or not progress.ledger.busy:
                continue  # something has been trained since the last one
            name, raylet = dice.choice(sorted(live.items()))
            for pid in [raylet, *children(raylet)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.append(name)
            seen = reports

    config = on_cards(training={"steps": 600}, budget={"trials": 4}, resources={"concurrent": 2})
    progress, folder = run(config, tmp_path, address=cards.address, watch=meanwhile(kill), body=counted)
    assert len(killed) == 10
    assert progress.stage == "finished"
    found = rows(folder)
    assert {row["state"] for row in found.values()} == {"completed"}
    assert all(row["retries"] == 0 for row in found.values())
    reports = [(row["trial"], row["step"]) for row in folder.table("metrics").to_pylist()]
    every = range(EVERY, 601, EVERY)
    assert sorted(reports) == sorted({(name, step) for name in found for step in every})
    again = repeated(log)
    assert again
    assert max(again) <= EVERY
    assert events(folder, "preempted")


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit():
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(state[1]) == pid:
                    found += [int(entry.name), *children(int(entry.name))]
    return found


def test_a_trial_leaves_a_machine_that_is_taken_back_and_goes_on_elsewhere(
    cards: Growing, tmp_path: Path
) -> None:
    drained = []

    def take_back(progress: Progress, over: threading.Event) -> None:
        until(lambda: over.is_set() or (progress.ledger.rows.get("t0000") or {}).get("step"))
        drained.extend(cards.nodes())
        assert node_ids(cards.address) == drained  # without the head
        with preempted() as metadata:
            program = [sys.executable, "-m", "cbe.cluster.spot_drain", "aws", cards.address]
            subprocess.run([*program, f"--metadata={metadata}"], check=True, timeout=180)

    until(lambda: not cards.nodes(), what="an empty cluster")
    config = on_cards(
        training={"steps": 40, "eval_every": 20},
        budget={"trials": 1},
        resources={"concurrent": 1},
    )
    progress, folder = run(config, tmp_path, address=cards.address, watch=meanwhile(take_back), body=held)
    assert progress.stage == "finished"
    assert len(drained) == 1
    (paused,) = events(folder, "paused")
    assert paused["step"] % 20  # between two evaluations
    assert repeated(tmp_path / "log") == [0]
    assert rows(folder)["t0000"]["retries"] == 0
    trained = config.paper_config(*config.pairs[0])
    figures = ("loss", "validation_error", "sampling_rate")
    assert curve(folder, "t0000", *figures) == unbroken(trained, *figures)


@contextmanager
def preempted() -> Iterator[str]:
    """A metadata service that says so, long enough before for the trial to leave."""
    later = datetime.now(UTC) + timedelta(minutes=10)
    action = {"action": "terminate", "time": f"{later:%Y-%m-%dT%H:%M:%SZ}"}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.answer(b"a token")

        def do_GET(self) -> None:
            self.answer(json.dumps(action).encode())

        def answer(self, content: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_config_that_needs_a_large_card_gets_one(cards: Growing, tmp_path: Path) -> None:
    config = on_cards(
        model={"name": "wrn-28-8"},
        ensemble={"kind": "model", "heads": 20},
        training={"batch_size": 64, "unlabeled_ratio": 7},
        search={"ensemble.heads": {"int": [20, 25]}},
        budget={"trials": 3},
        resources={"concurrent": 1},
    )
    until(lambda: not cards.nodes(), what="an empty cluster")
    _, folder = run(config, tmp_path, address=cards.address, body=bowl)
    assert len(rows(folder)) == 3  # one network alone, the paper's five heads on it, and twenty networks
    came = Counter(each["group"] for each in events(folder, "node came"))
    assert came == {"small": 1, "large": 1}


def test_a_folder_of_one_machine_is_refused_as_a_store(cards: Growing, tmp_path: Path) -> None:
    until(lambda: not cards.nodes(), what="an empty cluster")  # after the test before
    with pytest.raises(InputError, match="is a folder of one machine") as refused:
        run(on_cards(storage={"shared": False}), tmp_path, address=cards.address)
    assert "storage.shared: true" in str(refused.value)
    assert not cards.nodes()
