"""What a trial's process says: kept, cut, without secrets, and read from a store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cbe.errors import NonFiniteLoss
from cbe.store.folder import Store, StudyFolder
from cbe.study.trial import log as trial_log
from cbe.study.trial.log import logged, read_log
from tests.conftest import Cbe
from tests.made import Made


@pytest.fixture
def folder(store: Store) -> StudyFolder:
    return store.study("small")


def lines(folder: StudyFolder, trial: str = "t0000") -> list[str]:
    """Without their times, which are as long as this one."""
    return [line[len("2026-11-17 02:40:27 ") :] for line in read_log(folder, trial).splitlines()]


def test_what_is_printed_is_kept_with_our_own_lines(folder: StudyFolder) -> None:
    with logged(folder, "t0000") as log:
        log.say("begins on cpu of here")
        print("in", "parts", end=" ")
        print("and whole")
        sys.stderr.write("something is odd\nnot ended")
        log.evaluated({"step": 20, "loss": 1.23456, "validation_error": 0.125, "sampling_rate": None}, 40)
        log.evaluated({"paused": 25}, 40)
    assert lines(folder) == [
        *("begins on cpu of here", "in parts and whole", "something is odd", "not ended"),
        "step 20 of 40: loss 1.235, validation error 12.50 %",
    ]


def test_of_a_bar_the_last_is_kept_and_a_line_that_does_not_end_is_bounded(folder: StudyFolder) -> None:
    with logged(folder, "t0000"):
        for percent in range(101):
            print(f"{percent} %", end="\r")
        print()
        print("x" * 5 * trial_log.LINE, end="")
    bar, long = lines(folder)
    assert (bar, len(long)) == ("100 %", trial_log.LINE)


def test_a_process_that_takes_over_goes_on_in_the_same_file(folder: StudyFolder) -> None:
    for line in ("begins", "goes on"):
        with logged(folder, "t0000") as log:
            log.say(line)
    assert lines(folder) == ["begins", "goes on"]


def test_an_error_of_ours_is_a_line_and_another_is_told_in_full(folder: StudyFolder) -> None:
    with pytest.raises(NonFiniteLoss), logged(folder, "t0000"):
        raise NonFiniteLoss(3, {"loss": float("inf")})
    assert lines(folder)[0].startswith("NonFiniteLoss: loss is not finite at step 3 (loss inf)")
    with pytest.raises(ZeroDivisionError), logged(folder, "t0001"):
        print(1 // 0)
    found = lines(folder, "t0001")
    assert found[0] == "Traceback (most recent call last):"
    assert any(line.endswith("print(1 // 0)") for line in found)
    assert found[-1].startswith("ZeroDivisionError: ")


def test_it_is_kept_every_few_seconds_and_not_at_every_report(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logged(folder, "t0000") as log:
        log.say("first")
        log.keep()
        log.say("second")
        log.keep()
        assert lines(folder) == ["first"]
        monkeypatch.setattr(trial_log, "EVERY_S", 0.0)
        log.keep()
        assert lines(folder) == ["first", "second"]


def test_secrets_stay_out_and_a_long_one_loses_its_beginning(folder: StudyFolder) -> None:
    with logged(folder, "t0000"):
        print("GET https://me:hunter2@host/x?token=abc")
        for number in range(20_000):
            print("line", number)
    text = read_log(folder, "t0000")
    assert len(text) <= trial_log.MAX_CHARACTERS
    assert lines(folder)[-1] == "line 19999"
    assert lines(folder)[0].startswith("line ")  # a whole one
    with logged(folder, "t0001"):
        print("GET https://me:hunter2@host/x?token=abc")
    assert "hunter2" not in read_log(folder, "t0001") and "abc" not in read_log(folder, "t0001")


def test_a_store_that_takes_no_log_ends_no_trial(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with logged(Store.open(str(tmp_path / "results")).study("small"), "t0000") as log:
        log.say("unheard")


def test_the_command_prints_the_log_of_a_trial(cbe_: Cbe, tmp_path: Path) -> None:
    made = Made(tmp_path / "results")
    name = made.trial(0.1)
    none = cbe_("logs", f"made/{name}")
    assert (none.code, none.out) == (2, "")
    assert f"made/{name}: its process has said nothing yet" in none.err
    with logged(made.folder, name) as log:
        log.say("begins on \x1b[31mcpu")
    told = cbe_("logs", f"made/{name}")
    assert told.code == 0 and told.out.endswith("cpu\n") and "\x1b" not in told.out
    assert cbe_("logs", f"made/{name}", "-f").code == 2
    unknown = cbe_("logs", "made/t0009")
    assert unknown.code == 2 and "did you mean t0000?" in unknown.err
