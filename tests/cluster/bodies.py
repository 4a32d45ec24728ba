"""What trials do here; a module by itself, since their processes import it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cbe.ssl.world import World
from cbe.store.folder import Store
from cbe.study.assignment import Assignment
from cbe.study.trial.process import Shared, work
from cbe.training.launch import Send
from tests.study.bodies import bowl
from tests.waiting import until


def counted(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Trains as ever, and puts down where each process began and what it was about to report."""
    log = Path(shared.store) / "log"

    def note(**line: Any) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"trial": assignment.trial, **line}) + "\n")

    def tell(metrics: dict[str, Any], checkpoint: str | None) -> None:
        note(step=metrics.get("step", metrics.get("paused")))
        send(metrics, checkpoint)

    note(begins=int(Path(resume).stem) if resume else 0)
    work(shared, assignment, resume, tell, world)


def held(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """As `counted`; a trial that is new waits after its first report until it is told to leave."""

    def tell(metrics: dict[str, Any], checkpoint: str | None) -> None:
        send(metrics, checkpoint)
        if resume is None and "step" in metrics:
            until(shared.leave, what="a word")

    counted(shared, assignment, resume, tell, world)


def last_alone(shared: Shared, assignment: Assignment, resume: str | None, send: Send, world: World) -> None:
    """Two trials end once they are seen on two machines, the third once the others went."""
    folder = Store.open(shared.store).study(shared.study.name)

    def seen() -> bool:
        noted = folder.table("scaling", ["time", "running", "nodes"]).sort_by("time").to_pylist()
        so_far = [(row["running"], row["nodes"]) for row in noted]
        if assignment.trial == "t0002":
            return (1, 1) in so_far[so_far.index((2, 2)) :]  # not while the first of them came
        return (2, 2) in so_far

    until(seen, what="it to be seen")
    bowl(shared, assignment, resume, send, world)
