"""What a study file may say of its scheduler."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from cbe.spec.settings import Scheduler
from cbe.spec.train import Training


@pytest.mark.parametrize("rungs", [[], [0], [0.5, 1], [0.5, 0.2], [0.2, 0.2], [math.nan]])
def test_rungs_that_make_no_sense_are_refused(rungs: list[float]) -> None:
    with pytest.raises(ValidationError, match="rungs are shares of the steps, above 0, below 1 and rising"):
        Scheduler.model_validate({"name": "race", "rungs": rungs})


def test_rungs_are_for_a_race_and_come_before_the_last_evaluation() -> None:
    with pytest.raises(ValidationError, match="rungs are for the scheduler race, not for asha"):
        Scheduler(name="asha", rungs=(0.5,))
    for interval, steps in ((10, (30, 40)), (25, (50,)), (60, ())):
        training = Training(steps=60, eval_every=interval)
        assert Scheduler(name="race").rung_steps(training) == steps
    assert Scheduler(name="race", rungs=(0.07,)).rung_steps(Training(steps=100, eval_every=10)) == (10,)
