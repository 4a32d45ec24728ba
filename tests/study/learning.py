"""Drivers of studies that share a store, without Ray."""

from __future__ import annotations

import json
from pathlib import Path

from cbe.spec import StudyConfig
from cbe.store.folder import DATA_FILE, STUDY_FILE, Store
from cbe.store.recorder import Recorder
from cbe.study.agenda import Agenda
from cbe.study.assignment import Assignment
from cbe.study.ledger import Ledger
from cbe.study.lifecycle import begin
from cbe.study.search.earlier_studies import find
from cbe.study.search.sampling import Sampling
from cbe.study.search.transfer import learned
from cbe.study.trial.reuse import reusable_runs

DIGEST = "0123456789abcdef"  # of the images


class Driver:
    """One process's life with a study, as the engine sets it up; leaving it is dying."""

    def __init__(
        self, config: StudyConfig, where: Path, digest: str = DIGEST, device: str | None = "cpu"
    ) -> None:
        store = Store.open(str(where))
        self.folder = store.study(config.name)
        if self.folder.read(STUDY_FILE) is None:
            begin(config, store)
        facts = {"digest": digest, "validation": 200, "classes": [str(n) for n in range(10)]}
        self.folder.write(DATA_FILE, json.dumps(facts).encode())
        self.recorder = Recorder(self.folder, flush_s=3600).load()
        given = learned(config, self.folder, lambda: find(config, store))
        self.sampling = Sampling(config, self.recorder, given)
        self.ledger = Ledger(config, self.recorder, self.sampling, gpus=0)
        self.ledger.reusable = reusable_runs(config, store, digest, device)
        self.agenda = Agenda(config, self.folder, self.ledger)
        self.trained: list[str] = []

    def start(self) -> Assignment:
        upcoming = self.agenda.following()
        assert isinstance(upcoming, Assignment)
        self.ledger.started(upcoming)
        return upcoming

    def finish(self, assignment: Assignment) -> None:
        """Trains to the end; the nearer λ_lb is to 1, the lower the error, and each pair has a level."""
        off = abs(float(assignment.point.get("loss.weights.lb", 2.0)) - 1) / 10
        steps = self.ledger.rows[assignment.trial]["steps"]
        for step in range(10, steps + 1, 10):
            error = 0.1 + off + 0.01 * assignment.pair[0] % 0.05 + 0.5 / step
            found = {"step": step, "validation_error": error, "validation_loss": 3 * error, "device": "cpu"}
            self.ledger.reported(assignment, {**found, "node": "here", "confusion": [[step]]})
        self.ledger.ended(assignment, {})
        self.trained.append(assignment.trial)

    def run(self) -> list[str]:
        """Runs to the end; the names of the trials that were trained."""
        while isinstance(upcoming := self.agenda.following(), Assignment):
            self.ledger.started(upcoming)
            self.finish(upcoming)
        assert upcoming == "finished"
        return self.trained

    def die(self) -> None:
        self.recorder.close()


def ran(config: StudyConfig, where: Path, digest: str = DIGEST, device: str | None = "cpu") -> Driver:
    """A study that has been run to its end."""
    driver = Driver(config, where, digest, device)
    driver.run()
    driver.die()
    return driver
