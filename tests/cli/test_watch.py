"""Studies that are watched from elsewhere: the same panel and the same lines as where they run."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cbe.cli.progress.live import watched
from cbe.cli.progress.log import Log
from cbe.cli.progress.panel import panel
from cbe.processes import born
from cbe.store.folder import Store
from cbe.store.states import STATUS
from cbe.study.lifecycle import begin
from cbe.study.overview import Details, details
from cbe.study.progress_view import DetailsView, Shown
from tests.cli.progress.test_live import Study, words
from tests.conftest import Cbe
from tests.made import Made, finished, status


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    made = Study(tmp_path)
    begin(made.progress.study, Store.open(str(tmp_path / "results")))
    yield made
    made.recorder.close()


def told(study: Study) -> Details:
    """What a reader of the store sees: all that was recorded, and what the driver says of itself."""
    study.recorder.flush()
    who = {"state": "running", "pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
    study.folder.write(STATUS, json.dumps(who | study.progress.to_plain()).encode())
    return details(Store.open(str(Path(study.folder.uri).parent)), study.folder.name)


def lines(shown: Shown) -> list[str]:
    """A panel without its pace, which goes on."""
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as captured:
        console.print(panel(shown, 80, 24))
    return [line for line in captured.get().splitlines() if "steps/s" not in line]


def in_the_search(study: Study) -> None:
    study.end(study.report(study.start(), 200, 0.4))
    study.end(study.report(study.start(), 40, 0.8))
    study.fail(study.start(), "NonFiniteLoss", "loss is not finite")
    study.end(study.report(study.start(), 200, 0.125))
    study.report(study.start(), 60, 0.3)
    study.start()


def before_the_first_trial(study: Study) -> None:
    pass


def while_one_waits_at_a_rung(study: Study) -> None:
    study.report(study.start(), 20, 0.8)
    study.ledger.paused(study.report(study.start(), 20, 0.9).trial)


def while_it_stops(study: Study) -> None:
    study.report(study.start(), 20, 0.8)
    study.ledger.halt("budget.usd of 3 is spent")


@pytest.mark.parametrize(
    "happens", [before_the_first_trial, in_the_search, while_one_waits_at_a_rung, while_it_stops]
)
def test_the_panel_from_elsewhere_is_that_of_the_driver(
    study: Study, happens: Callable[[Study], None]
) -> None:
    happens(study)
    assert lines(DetailsView(told(study))) == lines(study.progress)


def test_the_lines_from_elsewhere_are_those_of_the_driver(study: Study) -> None:
    far = DetailsView(told(study))
    here_log, far_log = Log(study.progress), Log(far)
    for happens in (in_the_search, while_it_stops, lambda study: study.ledger.settle()):
        happens(study)
        far.details = told(study)
        here = list(here_log.lines(1))
        assert here and list(far_log.lines(1)) == here
    steady = re.compile(r", (about )?[\d. to]+ \w+ left$")  # by how fast it went so far
    assert steady.sub("", Log(far).so_far()) == steady.sub("", Log(study.progress).so_far())


def seen(study: Study, **changes: Any) -> Details:
    found = told(study)
    return replace(found, overview=replace(found.overview, **changes))


def test_a_study_that_waits_says_what_for(study: Study) -> None:
    far = DetailsView(seen(study, state="queued", reason="place 2 in the queue", elapsed_s=None))
    drawn = " ".join(lines(far))
    assert "small · queued" in drawn and "queued: place 2 in the queue" in drawn and "pace" not in drawn
    log = Log(far)
    assert list(log.lines(0)) == ["queued: place 2 in the queue"]
    far.details = seen(study, state="starting", reason=None)
    assert list(log.lines(1)) == ["starting"]
    far.details = told(study)
    assert list(log.lines(2)) == []


def test_a_study_that_is_asked_to_stop_says_so_in_the_log(study: Study) -> None:
    study.start()
    far = DetailsView(told(study))
    log = Log(far)
    far.details = seen(study, state="stopping")
    assert list(log.lines(0)) == ["stopping: it was asked to stop; running trials keep their last checkpoint"]


def test_on_a_terminal_the_watched_study_is_drawn_with_what_one_can_do(study: Study) -> None:
    file = io.StringIO()
    terminal = Console(file=file, width=80, height=24, force_terminal=True, color_system=None)

    def news() -> Iterator[Details]:
        study.end(study.report(study.start(), 200, 0.4))
        yield told(study)  # and it is drawn before more is asked for
        study.end(study.report(study.start(), 200, 0.2))
        yield told(study)

    last = watched(news(), "Ctrl-C ends the watching; the study goes on.\nStop it with: cbe stop", terminal)
    assert last.overview.best == 0.2
    first, _, over = file.getvalue().rpartition("╭")
    assert "40.0 % validation error" in words(first) and "Stop it with: cbe stop" in words(first)
    assert "20.0 % validation error" in words(over) and "Ctrl-C" not in over


def test_elsewhere_than_on_a_terminal_the_first_line_says_where_it_stands(study: Study) -> None:
    file = io.StringIO()
    study.end(study.report(study.start(), 200, 0.4))
    watched([told(study)], "", Console(file=file, width=80))
    (line,) = file.getvalue().splitlines()
    first = "so far the paper's config leads the search with 40.0 % validation error"
    assert line.startswith(f"search 1/6, confirm 0/6, 0 running, {first}")


# --- the command --------------------------------------------------------------------------------------------


def test_watching_what_has_ended_says_what_comes_next(
    cbe_: Cbe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = finished(tmp_path / "results")
    done = cbe_("show", "made", "--watch")
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("made: finished\nAnswer: cbe best made\n")
    status(made, "stopped", stop_reason="budget.usd of 3 is spent")
    done = cbe_("show", "made", "--watch")
    assert done.err.endswith(
        "made: stopped (budget.usd of 3 is spent)\nGo on with: cbe resume made --set budget.usd=…\n"
    )


def test_watch_json_and_yaml_are_one_at_a_time_and_yaml_wants_a_trial(cbe_: Cbe, tmp_path: Path) -> None:
    finished(tmp_path / "results")
    assert "give one of them" in cbe_("show", "made", "--watch", "--json").err
    assert "give STUDY/TRIAL, as made/t0001" in cbe_("show", "made", "--yaml").err
    assert "shows a whole study; give made" in cbe_("show", "made/t0001", "--watch").err


def test_show_says_so_far_as_long_as_the_study_goes_on(cbe_: Cbe, tmp_path: Path) -> None:
    made = Made(tmp_path / "results")
    made.trial(0.4, preset="base")
    who = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
    leads = "the base leads the search with 40.0 % validation error"
    for state, said in (("running", f"So far: {leads}"), ("stopped", leads)):
        status(made, state, **who, stage="search")
        assert said in cbe_("show", "made").out.splitlines()


def watching(made: Made, where: Path) -> subprocess.Popen[str]:
    """Somebody who watches a study that runs."""
    made.trial(0.4, preset="base")
    who = {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname()}
    status(made, "running", **who, stage="search")
    command = [sys.executable, "-m", "cbe", "show", "made", "--watch"]
    return subprocess.Popen(command, cwd=where, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_the_watching_and_not_the_study(tmp_path: Path) -> None:
    made = Made(tmp_path / "results")
    with watching(made, tmp_path) as watcher:
        assert watcher.stderr is not None
        first = watcher.stderr.readline()
        made.trial(0.2, {"ensemble.heads": 4})
        second = watcher.stderr.readline()
        watcher.send_signal(signal.SIGINT)
        rest = watcher.stderr.read()
    assert (
        first.startswith("search 1/12, ")
        and second == "t0001 completed at 300/300: validation error 20.00 %\n"
    )
    assert watcher.returncode == 130
    assert rest.splitlines() == [
        "No longer watched; made goes on.",
        "Watch it again with: cbe show made --watch",
        "Stop it with: cbe stop made",
    ]
    assert made.folder.read("stop") is None


def test_a_watched_study_is_shown_until_it_ends(tmp_path: Path) -> None:
    made = Made(tmp_path / "results")
    with watching(made, tmp_path) as watcher:
        assert watcher.stderr is not None
        watcher.stderr.readline()
        status(made, "finished")
        rest, deadline = watcher.stderr.read(), time.monotonic() + 60
        assert watcher.wait(max(0, deadline - time.monotonic())) == 0
    assert rest.endswith("made: finished\nAnswer: cbe best made\n")
