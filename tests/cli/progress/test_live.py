"""What a person sees while a study runs, drawn from real ledgers of small studies."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cbe.cli.progress.live import live
from cbe.cli.progress.log import Log
from cbe.cli.progress.panel import panel
from cbe.errors import InputError
from cbe.report.best import best
from cbe.spec import StudyConfig
from cbe.store.folder import Store
from cbe.store.recorder import Recorder
from cbe.store.states import status
from cbe.study.agenda import Agenda
from cbe.study.assignment import Assignment
from cbe.study.control import Claim
from cbe.study.ledger import Ledger
from cbe.study.lifecycle import begun, journal
from cbe.study.progress import Progress
from cbe.study.search.sampling import Sampling

QUESTION = "Do [bold]more[/bold] heads help where few labels are given, and what do the weights do?"


class Study:
    """A study whose trials do what a test says."""

    def __init__(self, place: Path, **sections: Any) -> None:
        plain = {
            "name": "small",
            "question": QUESTION,
            "model": "wrn-10-1",
            "training": {"steps": 200, "eval_every": 20},
            "budget": {"trials": 6},
            "confirm": {"configs": 1, "runs": 2},
        }
        config = StudyConfig.model_validate(plain | sections)
        self.folder = Store.open(str(place / "results")).study(config.name)
        self.recorder = Recorder(self.folder, flush_s=3600)
        self.ledger = Ledger(config, self.recorder, Sampling(config), gpus=0)
        self.agenda = Agenda(config, self.folder, self.ledger)
        self.progress = Progress(self.ledger, self.agenda, concurrent=2)

    def start(self) -> Assignment:
        assignment = self.agenda.following()
        assert isinstance(assignment, Assignment)
        self.ledger.started(assignment)
        return assignment

    def report(self, assignment: Assignment, step: int, error: float) -> Assignment:
        self.ledger.reported(assignment, {"step": step, "validation_error": error, "test_error": 0.99})
        return assignment

    def end(self, assignment: Assignment) -> None:
        self.ledger.ended(assignment, {})

    def fail(self, assignment: Assignment, kind: str, text: str) -> None:
        self.ledger.failed(assignment, kind, text)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    made = Study(tmp_path)
    yield made
    made.recorder.close()


def drawn(progress: Progress, width: int = 80, height: int = 24) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(panel(progress, width, height))
    return captured.get()


def words(text: str) -> str:
    """The text of a panel without its frame and line breaks."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("width", [76, 80, 120])
def test_the_panel_tells_all_there_is_to_know_within_the_width(study: Study, width: int) -> None:
    study.end(study.report(study.start(), 200, 0.4))
    study.end(study.report(study.start(), 200, 0.5))
    study.end(study.report(study.start(), 40, 0.8))
    study.end(study.report(study.start(), 200, 0.125))
    study.report(study.start(), 60, 0.3)
    text = drawn(study.progress, width)
    assert all(len(line) == width for line in text.splitlines())
    told = words(text)
    assert "small · search" in told and words(QUESTION) in told
    assert "4/6" in told and "0/6 at most" in told
    assert "3 completed · 1 pruned · 1 running" in told
    assert "60/200 validation error 30.00 %" in told
    assert "so far t0003 leads the search with 12.5 % validation error" in told
    assert "to come 2 trials, then a confirmation of at most 6 runs" in told
    assert "steps/s" in told and "elapsed" in told and " left" in told


def test_of_the_best_config_the_panel_shows_what_differs_from_the_papers(tmp_path: Path) -> None:
    search = {"ensemble.heads": [5], "loss.target": ["hard"], "method.threshold": [0.9]}
    study = Study(tmp_path, search=search, method={"name": "fixmatch", "threshold": 0.9})
    for error in (0.4, 0.5, 0.1):
        study.end(study.report(study.start(), 200, error))
    told = words(drawn(study.progress))
    assert "t0002 leads the search with 10.0 % validation error target hard to come" in told
    study.recorder.close()


def test_where_the_base_is_best_so_far_the_panel_says_so(study: Study) -> None:
    study.end(study.report(study.start(), 200, 0.4))
    study.end(study.report(study.start(), 200, 0.3))
    assert "so far the base leads the search with 30.0 % validation error" in words(drawn(study.progress))


def test_the_last_screen_and_the_answer_name_the_same_config_and_figure(study: Study) -> None:
    """The search's best, at 5 %, does not hold in the confirmation."""
    searched = {"paper": 0.5, "base": 0.4, None: 0.05}
    confirmed = {"paper": 0.55, "base": 0.45, None: 0.6}
    while isinstance(given := study.agenda.following(), Assignment):
        study.ledger.started(given)
        error = (searched if given.role == "search" else confirmed)[given.preset]
        study.end(study.report(given, 200, error + 0.01 * given.pair[0]))
    study.recorder.flush()
    answer = best(study.folder, study=study.progress.study)
    assert answer.headline.startswith("The base is better than ")
    assert answer.headline.endswith(": 46.5 % validation error") and answer.confirmed
    told = words(drawn(study.progress))
    assert "result the base leads the confirmation with 46.5 % validation error (n = 2)" in told
    assert "to come" not in told and "t0002 leads" not in told


def test_failures_are_counted_by_class_and_their_text_steers_no_terminal(study: Study) -> None:
    study.end(study.report(study.start(), 200, 0.4))
    study.fail(study.start(), "NonFiniteLoss", "loss is not finite")
    study.fail(study.start(), "OutOfMemory", "[red]no[/red] memory\x1b[2J\rleft\nsecond line")
    text = drawn(study.progress)
    told = words(text)
    assert "failed NonFiniteLoss × 1, OutOfMemory × 1" in told
    assert "t0002: [red]no[/red] memory [2J left" in told
    assert "\x1b" not in text and "\r" not in text and "second line" not in told


def test_more_running_trials_than_fit_are_counted(tmp_path: Path) -> None:
    study = Study(tmp_path, budget={"trials": 12}, scheduler="none")
    for _ in range(12):
        study.start()
    text = drawn(study.progress, height=24)
    assert "t0003" in text and "t0004" not in text and "and 8 more" in text
    assert "t0011" in drawn(study.progress, height=50)
    study.recorder.close()


def test_a_trial_that_waits_at_a_rung_is_told_as_paused(study: Study) -> None:
    study.end(study.report(study.start(), 200, 0.4))
    study.report(study.start(), 20, 0.7)
    waits = study.report(study.start(), 40, 0.8)
    log = Log(study.progress)
    study.ledger.paused(waits.trial)
    told = words(drawn(study.progress))
    assert "1 completed · 1 running · 1 paused" in told and "t0001" in told and waits.trial not in told
    (line,) = log.lines(61)
    assert line.startswith("search 1/6, confirm 0/6, 1 running, 1 paused, ")
    plain = study.progress.to_plain()
    assert plain["counts"] == {"completed": 1, "running": 1, "paused": 1}
    assert plain["paused"] == [waits.trial] and [row["trial"] for row in plain["running"]] == ["t0001"]
    study.ledger.started(waits)
    assert "1 completed · 2 running" in words(drawn(study.progress))


def test_a_study_is_not_finished_while_a_trial_waits(tmp_path: Path) -> None:
    study = Study(tmp_path, budget={"trials": 3}, confirm={"configs": 0, "runs": 0})
    for _ in range(2):
        study.end(study.report(study.start(), 200, 0.4))
    waits = study.report(study.start(), 20, 0.3)
    study.ledger.paused(waits.trial)
    assert study.agenda.following() == "finished" and study.progress.stage == "search"
    study.end(waits)
    assert study.progress.stage == "finished"
    study.recorder.close()


def test_results_that_cannot_be_written_are_told(study: Study) -> None:
    Path(study.folder.path("trials")).parent.mkdir(parents=True)
    Path(study.folder.path("trials")).write_text("in the way")
    study.start()
    study.recorder.flush()
    assert "Results cannot be written and are kept in memory" in words(drawn(study.progress))
    assert any("results cannot be written" in line for line in Log(study.progress).lines(0))
    Path(study.folder.path("trials")).unlink()


def test_the_log_has_one_line_for_each_trial_that_ends(study: Study) -> None:
    first, second = study.start(), study.start()
    log = Log(study.progress)
    assert list(log.lines(0)) == []
    study.end(study.report(first, 200, 0.412))
    study.end(study.report(second, 40, 0.9))
    assert list(log.lines(1)) == [
        "t0000 completed at 200/200: validation error 41.20 %",
        "t0001 pruned at 40/200: validation error 90.00 %",
    ]
    assert list(log.lines(2)) == []
    study.fail(study.report(study.start(), 20, 0.8), "NonFiniteLoss", "loss is not finite\nat all")
    assert list(log.lines(3)) == ["t0002 failed at 20/200: NonFiniteLoss: loss is not finite"]


def test_the_log_says_once_a_minute_how_far_it_is(study: Study) -> None:
    study.end(study.report(study.start(), 200, 0.4))
    study.start()
    log = Log(study.progress)
    assert list(log.lines(59)) == []
    (line,) = log.lines(61)
    first = "so far the paper's config leads the search with 40.0 % validation error"
    assert line.startswith(f"search 1/6, confirm 0/6, 1 running, {first}, ")
    assert line.endswith(" left")
    assert list(log.lines(100)) == []
    assert len(list(log.lines(122))) == 1


def test_before_the_first_trial_the_log_says_what_is_being_prepared(study: Study) -> None:
    log = Log(study.progress)
    study.progress.say("decoding 50,000 images")
    assert list(log.lines(1)) == ["decoding 50,000 images"]
    assert list(log.lines(2)) == []
    assert "decoding 50,000 images" in drawn(study.progress)


def test_a_halt_is_told_with_its_reason_and_how_to_go_on(study: Study) -> None:
    file = io.StringIO()
    with live(study.progress, Console(file=file, width=80)):
        study.report(study.start(), 20, 0.8)
        study.ledger.halt("interrupted")
        study.ledger.settle()
    assert file.getvalue().splitlines() == [
        "stopping: interrupted; running trials keep their last checkpoint",
        "t0000 interrupted at 20/200: validation error 80.00 %",
        "Stopped: interrupted; every trial keeps its last checkpoint.",
        f"Go on with: cbe resume small --store {Path(study.folder.uri).parent}",
    ]


def test_trials_that_were_interrupted_before_are_not_told_again(study: Study) -> None:
    study.report(study.start(), 20, 0.8)
    study.ledger.settle()
    assert list(Log(study.progress).lines(0)) == []


def test_where_the_budget_is_spent_the_way_on_raises_it(study: Study) -> None:
    file = io.StringIO()
    with live(study.progress, Console(file=file, width=80)):
        study.ledger.halt("budget.usd of 3 is spent")
    assert file.getvalue().endswith(" --set budget.usd=…\n")


def test_the_command_to_go_on_is_short_where_the_store_is_the_usual_one(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBE_STORE", str(Path(study.folder.uri).parent))
    file = io.StringIO()
    study.start()
    with live(study.progress, Console(file=file, width=80)):
        study.ledger.halt("interrupted")
    assert file.getvalue().endswith("\nGo on with: cbe resume small\n")


def test_a_study_that_is_interrupted_before_its_first_trial_has_nothing_to_go_on_with(study: Study) -> None:
    file = io.StringIO()
    with live(study.progress, Console(file=file, width=80)):
        study.ledger.halt("interrupted")
    assert file.getvalue().endswith("Stopped: interrupted; no trial had started.\n")


def test_the_time_by_the_clock_is_that_of_all_starts(study: Study) -> None:
    for begins, ends in ((0.0, 50.0), (50.0, 120.0)):
        with Claim(study.folder) as claim:
            assert claim.elapsed_s == status(study.folder).elapsed_s == begins
            progress = Progress(study.ledger, study.agenda, concurrent=2, before_s=claim.elapsed_s)
            progress.started -= ends - begins
            assert ends <= progress.elapsed_s < ends + 10
            claim.end(progress)
        told = status(study.folder).elapsed_s
        assert ends <= told < ends + 10
        study.folder.write("status.json", json.dumps({"state": "stopped", "elapsed_s": ends}).encode())
    with pytest.raises(KeyboardInterrupt), Claim(study.folder):
        raise KeyboardInterrupt
    assert status(study.folder).elapsed_s == 120.0


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_a_study_that_ends_before_its_first_trial_leaves_nothing_behind(
    error: type[BaseException], tmp_path: Path
) -> None:
    store = Store.open(str(tmp_path))
    config = StudyConfig(name="small")
    folder = store.study("small")
    with pytest.raises(error), begun(config, store):
        folder.write("status.json", b"{}")
        raise error
    assert store.names() == [] and not (tmp_path / "small").exists()
    with pytest.raises(error), begun(config, store):
        with closing(Recorder(folder)) as recorder:
            recorder.trial("t0000", state="running")
        raise error
    assert store.names() == ["small"]


def test_ctrl_c_that_stops_a_study_in_order_before_its_first_trial_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    study = Study(tmp_path)
    store = Store.open(str(tmp_path / "results"))
    study.ledger.stop_reason = "interrupted"
    with pytest.raises(KeyboardInterrupt), begun(study.ledger.study, store), Claim(study.folder) as claim:
        claim.end(study.progress)
    assert store.names() == [] and not (tmp_path / "results/small").exists()
    with begun(study.ledger.study, store), Claim(study.folder) as claim:
        study.ledger.stop_reason = None
        study.start()
        study.recorder.flush()
        study.ledger.stop_reason = "interrupted"
        claim.end(study.progress)
    assert store.names() == ["small"]


def test_a_study_that_never_began_takes_its_journal_along_and_one_with_checkpoints_stays(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config, folder = StudyConfig(name="small"), store.study("small")
    with pytest.raises(InputError), begun(config, store):
        journal(folder).parent.mkdir(parents=True, exist_ok=True)
        journal(folder).touch()
        assert journal(folder).exists()
        raise InputError("no")
    assert store.names() == [] and not journal(folder).exists()
    with pytest.raises(InputError), begun(config, store):
        folder.write("checkpoints/t0000/20.pt", b"kept")
        raise InputError("no")
    assert store.names() == ["small"] and folder.list("checkpoints") == ["t0000"]


def test_a_study_that_another_process_drives_is_not_removed(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    folder, running = store.study("small"), pytest.raises(InputError, match="is running already")
    with Claim(folder), running, begun(StudyConfig(name="small"), store), Claim(folder):
        raise AssertionError
    assert store.names() == ["small"]


def test_on_a_terminal_the_panel_stays_without_advice_when_it_is_over(study: Study) -> None:
    file = io.StringIO()
    terminal = Console(file=file, width=80, height=24, force_terminal=True, color_system=None)
    with live(study.progress, terminal):
        study.end(study.report(study.start(), 200, 0.4))
    first, _, last = file.getvalue().rpartition("╭")
    assert "Ctrl-C stops after the running reports, keeps all; twice ends at once." in words(first)
    assert "Go on with: cbe resume small" in words(first)
    assert "40.0 % validation error" in last and "Ctrl-C" not in last
    assert max(len(line) for line in last.splitlines()) <= 76  # room for the ^C that a terminal echoes


def test_ending_at_once_says_what_is_kept(study: Study) -> None:
    file = io.StringIO()
    with pytest.raises(KeyboardInterrupt), live(study.progress, Console(file=file, width=80)):
        raise KeyboardInterrupt
    assert file.getvalue() == ""  # nothing has begun, and nothing is kept
    study.start()
    with pytest.raises(KeyboardInterrupt), live(study.progress, Console(file=file, width=80)):
        raise KeyboardInterrupt
    assert "Stopped at once. Recorded results and checkpoints are kept." in file.getvalue()
    assert "Go on with: cbe resume small" in file.getvalue()


def test_an_error_is_left_to_say_itself_what_to_do(study: Study) -> None:
    file = io.StringIO()
    with pytest.raises(OSError), live(study.progress, Console(file=file, width=80)):
        raise OSError("disk")
    assert file.getvalue() == ""
