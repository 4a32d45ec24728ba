"""The studies of a store, where no Ray is needed to steer them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbe.errors import InputError
from cbe.service.clients.local import LocalStudies
from cbe.store.folder import Store
from cbe.study.control import ask_to_stop
from tests.contract.test_studies import ALIVE
from tests.made import status, whole


def test_a_resume_waits_for_a_driver_that_was_just_asked_to_stop(tmp_path: Path) -> None:
    made = whole(tmp_path)
    status(made, "running", **ALIVE)
    ask_to_stop(made.folder)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        status(made, "finished")

    ended = LocalStudies(Store.open(str(tmp_path)), say=say).resume("made")
    assert ended.state == "finished" and said == ["made: waits for its driver, which was asked to stop …"]


def test_a_driver_that_was_not_asked_to_stop_is_not_waited_for(tmp_path: Path) -> None:
    made = whole(tmp_path)
    status(made, "running", **ALIVE)
    said: list[str] = []
    studies = LocalStudies(Store.open(str(tmp_path)), say=said.append)
    for asked in ({"changes": ["budget.trials=99"]}, {"retry": ["failed"]}):
        with pytest.raises(InputError, match="made: is running"):
            studies.resume("made", **asked)
    assert not said and made.folder.read("retry.json") is None
