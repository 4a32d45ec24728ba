"""How a study stands is one answer, whoever is asked: `cbe ls`, the report page, the service, an export."""

from __future__ import annotations

import csv
import json
import os
import re
import socket
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from cbe.errors import InputError
from cbe.models.trials import find
from cbe.processes import born
from cbe.report.best import best
from cbe.report.export import export
from cbe.report.page.evidence import gather
from cbe.report.page.render import render
from cbe.report.results import open_store
from cbe.service.trials import trial
from cbe.store.folder import Store
from cbe.store.states import COUNTED, FINAL, OPEN, STUDY_STATES, TRIAL_STATES, UNDER_WAY, Status
from cbe.study.overview import details
from tests.conftest import Cbe
from tests.made import Made, status

HERE: dict[str, Any] = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
LONG_AGO = {"beat": time.time() - 3600}
DRIVERS: dict[str, tuple[dict[str, Any], str]] = {
    "killed": (HERE | {"pid": 2**22 + 1}, "interrupted"),
    "alive, without a heartbeat": (HERE | LONG_AGO, "running"),
    "elsewhere and silent": (HERE | {"host": "elsewhere"} | LONG_AGO, "interrupted"),
    "elsewhere and heard": (HERE | {"host": "elsewhere"}, "running"),
}


def running(store: Path, driver: dict[str, Any]) -> Made:
    made = Made(store)
    made.trial(0.2, preset="base")
    made.trial(0.3, {"ensemble.heads": 5, "loss.weights.lb": 2.0}, state="running")
    status(made, "running", **driver)
    return made


@pytest.mark.parametrize("driver", DRIVERS)
def test_all_who_show_a_study_agree_how_it_stands(
    cbe_: Cbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    said, state = DRIVERS[driver]
    made = running(tmp_path / "store", said)
    (listed,) = json.loads(cbe_("ls", "--store", str(tmp_path / "store"), "--json").out)
    page, text = gather(made.folder), render(made.folder)
    assert listed["state"] == page.progress.state == state
    assert listed["counts"] == page.counts == best(made.folder).counts == {"completed": 1, state: 1}
    assert ("Running: 1 trial" in text, "driver last reported at" in text) == (
        state == "running",
        state != "running",
    )
    store = Store.open(str(tmp_path / "store"))
    assert trial(store, "made", "t0001").row["state"] == state
    assert {row["trial"]: row["state"] for row in details(store, "made").trials}["t0001"] == state
    with pytest.raises(InputError, match=f"trial t0001: is {state}; wanted one that is completed or pruned"):
        find(made.folder, made.study, "t0001")
    monkeypatch.chdir(tmp_path)
    with open(export(made.folder, "csv").path / "trials.csv", encoding="utf-8") as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["completed", state]


@pytest.mark.parametrize("plain", [{"beat": "soon"}, {"pid": "1"}, {"pid": 10**30}])
def test_a_status_that_no_driver_writes_is_of_one_that_is_gone(plain: dict[str, Any]) -> None:
    host = socket.gethostname() if "pid" in plain else "elsewhere"
    last = Status({"state": "running", "host": host, **plain})
    assert (last.state, last.heard) == ("interrupted", None)
    assert Status({"beat": 1e300}).heard is None


def test_every_state_of_a_trial_is_final_or_open() -> None:
    assert {*FINAL, *OPEN} == {*TRIAL_STATES} and not {*FINAL} & {*OPEN}
    assert {*FINAL} - {*COUNTED} == {"infeasible"}


def test_the_page_of_the_service_offers_the_states_of_studies() -> None:
    """It holds no other list of them: what goes on it is told as `under_way`."""
    static = files("cbe.service.web") / "static"
    found = re.search(r"STATES = \[(.*?)\]", (static / "words.js").read_text("utf-8"), re.DOTALL)
    assert found and re.findall(r'"(\w+)"', found[1]) == list(STUDY_STATES)
    assert {*UNDER_WAY} < {*STUDY_STATES}


@pytest.mark.parametrize("driver", DRIVERS)
def test_tables_and_sql_tell_trials_as_all_others_do(tmp_path: Path, driver: str) -> None:
    said, state = DRIVERS[driver]
    running(tmp_path, said)
    results = open_store(tmp_path)
    for study in (None, "made"):
        assert sorted(results.trials(study)["state"].to_pylist()) == ["completed", state]
        found = results.sql("select state from trials order by state", study)
        assert found.to_pydict() == {"state": ["completed", state]}
        asked = results.trials(study, columns=["trial"], where=pc.field("state") == "running")
        assert len(asked) == (state == "running") and asked.column_names == ["trial"]


def test_tables_and_sql_tell_trials_that_wait_at_a_rung_as_paused(tmp_path: Path) -> None:
    made = running(tmp_path, HERE)
    name = made.trial(0.4, {"ensemble.heads": 4}, state="running")
    status(made, "running", **HERE, paused=[name])
    results = open_store(tmp_path)
    counts = "select state, count(*) n from trials group by state order by state"
    expected = {"state": ["completed", "paused", "running"], "n": [1, 1, 1]}
    assert results.sql(counts).to_pydict() == expected
    assert sorted(results.trials()["state"].to_pylist()) == expected["state"]
