"""The scheduler race on a real Ray: trials wait at rungs, and the best go on from their checkpoints."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cbe.ssl.world import World
from cbe.store.folder import Store, StudyFolder
from cbe.study.assignment import Assignment
from cbe.study.progress import Progress
from cbe.study.trial.process import Shared
from cbe.training.launch import Send
from tests.study.conftest import curve, meanwhile, rows, run, study
from tests.waiting import until

RACE: dict[str, Any] = {
    "scheduler": {"name": "race", "reduction": 3, "rungs": [0.16, 0.33]},  # steps 10 and 20
    "training": {"steps": 60, "eval_every": 10},
}


def resumable() -> Any:
    """A body that goes on from its checkpoint's step; the earlier a trial began, the lower its error."""

    # In here, so that it is sent by value: a trial's process cannot import this file with its conftest.
    def body(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
        folder, training = Store.open(shared.store).study(shared.study.name), shared.study.training
        content = folder.read(resume) if resume else None
        begin, interval = json.loads(content)["step"] if content else 0, training.evaluation_interval
        loss = int(assignment.trial[1:]) / 10 if assignment.point else 9.0
        for step in range(begin + interval, training.steps + 1, interval):
            kept = f"checkpoints/{assignment.trial}/{shared.epoch}/{step:09d}.pt"
            folder.write(kept, json.dumps({"step": step}).encode())
            figures = {"validation_error": loss / 10, "validation_loss": loss, "trial_s": 0.1, "loss": begin}
            send({"step": step, **figures, "checkpoint": kept}, kept)

    return body


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_race_ends_with_promoted_trials_that_went_on_from_their_checkpoints(
    tmp_path: Path, at_once: int
) -> None:
    config = study(
        **RACE,
        search={"loss.weights.lb": {"float": [0.1, 3]}},
        sampler="random",
        budget={"trials": 9},
        confirm={"configs": 1, "runs": 1},
        resources={"concurrent": at_once},
    )
    progress, folder = run(config, tmp_path, body=resumable())
    assert progress.stop_reason is None
    found = rows(folder)
    search = {name: row for name, row in found.items() if row["role"] == "search"}
    assert len(search) == 9 and len(found) > 9
    for name, row in found.items():
        assert [step for step, *_ in curve(folder, name)] == list(range(10, row["step"] + 1, 10)), name
        assert row["state"] == ("completed" if row["step"] == 60 else "pruned")
        if row["preset"] or row["role"] == "confirm":
            assert row["state"] == "completed"
    pruned = [row for row in search.values() if row["state"] == "pruned"]
    assert len(pruned) >= 3 and {row["step"] for row in pruned} <= {10, 20}
    sampled = [row for row in search.values() if not row["preset"]]
    best = min(sampled, key=lambda row: row["objective"])
    assert best["state"] == "completed"
    waited = waited_at_rungs(folder, [row["trial"] for row in sampled])
    begun = {name: {begin for _, begin in curve(folder, name, "loss")} for name in found}
    for name, row in found.items():
        assert begun[name] == {0, *(rung for rung in waited.get(name, ()) if rung < row["step"])}, name
    # Only the two best can be the first to report, and then one of them waits and goes on.
    assert begun["t0002"] | begun["t0003"] > {0}


@pytest.mark.usefixtures("cluster")
def test_a_race_that_is_interrupted_goes_on_with_who_waited_still_waiting(tmp_path: Path) -> None:
    config = study(
        training=RACE["training"],
        scheduler={**RACE["scheduler"], "pairs": 1},
        search={"loss.weights.lb": {"float": [0.1, 3]}},
        sampler="random",
        budget={"trials": 11},
    )

    def stop(progress: Progress, over: threading.Event) -> None:
        until(lambda: over.is_set() or len(progress.ledger.paused_trials) >= 3, what="waiting trials")
        progress.ledger.halt("the test says so")

    progress, folder = run(config, tmp_path, body=resumable(), watch=meanwhile(stop))
    assert progress.stop_reason == "the test says so"
    waited = {
        name for name, row in rows(folder).items() if row["state"] == "interrupted" and row["step"] == 10
    }
    assert len(waited) >= 3
    progress, folder = run(config, tmp_path, body=resumable())
    assert progress.stop_reason is None
    found = rows(folder)
    assert len(found) == 11 and {row["state"] for row in found.values()} <= {"completed", "pruned"}
    for name, row in found.items():
        assert [step for step, *_ in curve(folder, name)] == list(range(10, row["step"] + 1, 10)), name
    dropped = [name for name in waited if found[name]["state"] == "pruned" and found[name]["step"] == 10]
    assert dropped  # they were judged by what they had, and trained no more for it
    resumed = {row["trial"] for row in folder.table("events").to_pylist() if row["kind"] == "resumed"}
    assert resumed.isdisjoint(dropped)


def waited_at_rungs(folder: StudyFolder, names: Sequence[str]) -> dict[str, set[int]]:
    """The rungs at which a trial was not among the best third of those that had reported there by then.

    How many there are depends on the order of reports: a trial may be among the best at its report.
    """
    table = folder.table("metrics", ["trial", "step", "time", "validation_error"])
    reports = table.sort_by("time").to_pylist()
    waited: dict[str, set[int]] = {name: set() for name in names}
    for rung in (10, 20):
        so_far: list[tuple[float, str]] = []
        for report in reports:
            if report["step"] == rung and report["trial"] in waited:
                so_far.append((report["validation_error"], report["trial"]))
                if so_far[-1] not in sorted(so_far)[: len(so_far) // 3]:
                    waited[report["trial"]].add(rung)
    return waited
