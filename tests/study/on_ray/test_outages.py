"""A store that does not answer for a while, or a disk that takes nothing, ends no study."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbe.errors import CbeError
from cbe.store.folder import StudyFolder
from cbe.study.progress import Progress
from tests.faulty_proxy import Fault, FaultyProxy
from tests.study.conftest import curve, meanwhile, rows, run, study
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("cluster")

SMALL = {"budget": {"trials": 4}, "scheduler": "none", "training": {"steps": 60, "eval_every": 10}}


@pytest.fixture
def proxy(s3_port: int) -> Iterator[FaultyProxy]:
    made = FaultyProxy(s3_port)
    yield made
    made.close()


def has_begun(progress: Progress) -> bool:
    return any(row["step"] for row in progress.rows())


def ended_as_ever(folder: StudyFolder) -> None:
    """Every trial came to its end without a retry, every step is there once, and the outage is on record."""
    found = rows(folder)
    assert len(found) == 4
    for name, row in found.items():
        assert (row["state"], row["retries"]) == ("completed", 0)
        assert [step for step, *_ in curve(folder, name)] == list(range(10, 61, 10))
    events = folder.table("events").sort_by("time").to_pylist()
    told = [each for each in events if each["kind"].startswith("store_")]
    assert [each["kind"] for each in told][:2] == ["store_unreachable", "store_back"]
    assert json.loads(told[0]["details"])["why"]
    assert json.loads(told[1]["details"])["after_s"] > 0
    assert json.loads(folder.read("status.json") or b"")["state"] == "finished"


@pytest.mark.parametrize("fault", ["refuses", "drops", "answers 503"])
def test_a_study_outlasts_that_its_bucket_does_not_answer(
    fault: Fault,
    proxy: FaultyProxy,
    bucket: str,
    s3_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shown: list[str | None] = []

    def interrupt(progress: Progress, over: threading.Event) -> None:
        until(lambda: over.is_set() or has_begun(progress), what="a report")
        with proxy.failing(fault):
            until(lambda: over.is_set() or progress.problem, what="the word that the store is away")
            shown.append(progress.problem)
            over.wait(5)  # longer than the tries of one request
        until(lambda: over.is_set() or not progress.problem, what="the word that it is back")
        shown.append(progress.problem)

    through = bucket.replace(str(s3_port), str(proxy.port)).replace("results", f"results-{tmp_path.name}")
    progress, folder = run(study(**SMALL), through, watch=meanwhile(interrupt))
    assert proxy.met and shown[0] and shown[1] is None
    assert progress.stop_reason is None
    ended_as_ever(folder)


def test_a_study_goes_on_by_itself_when_its_folder_can_be_written_again(tmp_path: Path) -> None:
    """Something else takes the place of what it writes: that stops even an administrator."""
    where = tmp_path / "results" / "small"

    def obstruct(progress: Progress, over: threading.Event) -> None:
        until(lambda: over.is_set() or has_begun(progress), what="a report")
        where.rename(where.with_name("aside"))
        where.write_text("in the way")
        until(lambda: over.is_set() or progress.problem, what="the word that nothing can be written")
        over.wait(3)
        where.unlink()
        where.with_name("aside").rename(where)

    elsewhere = {"optuna": f"sqlite:///{tmp_path}/optuna.db"}
    _, folder = run(study(**SMALL, storage=elsewhere), tmp_path / "results", watch=meanwhile(obstruct))
    ended_as_ever(folder)


def test_a_store_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("in the way")
    with pytest.raises(CbeError, match=r"results.*(cannot be read|could not be written)"):
        run(study(**SMALL), tmp_path / "results")
