"""What trials do here; a module by itself, since their processes import it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cbe.ssl.world import World
from cbe.study.assignment import Assignment
from cbe.study.trial import Shared, work
from cbe.training.launch import Send


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
