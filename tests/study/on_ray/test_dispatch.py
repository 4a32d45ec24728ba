"""What the loss of machines costs a trial, as Tune tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError

from cbe.study.dispatch import FORGIVEN, Listener
from tests.study.conftest import study
from tests.study.test_agenda import Driver


class Lost(SimpleNamespace):
    """What a listener asks of Tune's trial, whose machine was lost."""

    def __str__(self) -> str:
        return str(self.config["trial"])


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found = Driver(study(), tmp_path)
    yield found
    found.die()


def test_losses_of_machines_are_forgiven_but_not_at_the_same_step_for_ever(
    driver: Driver, tmp_path: Path
) -> None:
    listener, assignment = Listener(driver.ledger, "none"), driver.start()
    error = tmp_path / "error.pkl"
    error.write_bytes(cloudpickle.dumps(ActorUnavailableError("gone", None)))
    trial: Any = Lost(config=assignment.to_plain(), pickled_error_file=str(error), max_failures=3)
    listener.on_trial_start(0, [], trial)

    def lose() -> int:
        listener.on_trial_recover(0, [], trial)
        retries: int = driver.ledger.rows[assignment.trial]["retries"]
        return retries

    assert [lose() for _ in range(FORGIVEN + 2)] == [0] * FORGIVEN + [1, 2]
    assert trial.max_failures == 3 + FORGIVEN
    listener.on_trial_result(0, [], trial, {"step": 10, "validation_error": 0.5})
    assert lose() == 2  # it has come further since
    listener.on_trial_result(0, [], trial, {"paused": 15})
    assert [lose() for _ in range(FORGIVEN)] == [2] * FORGIVEN
