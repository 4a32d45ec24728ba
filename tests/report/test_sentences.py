"""What the answer says in words, and that it claims no more than it shows."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from rich.console import Console

from cbe.cli import console
from cbe.cli.best import print_answer
from cbe.configs import leader
from tests.report.written import BASE, Written, finished, moved


def test_the_sentence_says_better_where_the_paired_interval_lies_below_zero(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.021, -0.019))
    answer = written.best()
    # By hand: values 0.08, 0.099, 0.121 have mean 0.1 and deviation 0.02052; differences 0.02 and 0.001;
    # the 97.5 % quantile of Student's t with two degrees of freedom is 4.3027. The logit of 0.1 is −2.197,
    # and the interval reaches 4.3027 · 0.02052 / √3 / 0.09 = 0.566 to either side. At three of ten pairs the
    # verdict asks for |t| above 28.2: the difference's interval reaches 28.2 · 0.001 / √3 = 0.016.
    assert answer.sentence == (
        "c0003 has 10.0 % validation error (95 % 5.9 to 16.4, n = 3), "
        "2.0 points (0.4 to 3.6) below the base: better, decided after 3 of at most 10 pairs."
    )
    assert answer.ranked[0].verdict == "better"


def test_the_sentence_claims_nothing_where_the_interval_holds_zero(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.01, -0.03))
    answer = written.best()
    assert answer.sentence.endswith(
        "2.0 points (−14.3 to 18.3) below the base: undecided after 3 of at most 10 pairs; "
        "a difference of this size takes about 6."
    )
    assert answer.ranked[0].verdict == "undecided"


def test_a_config_wholly_above_the_base_is_called_worse(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, 0.02, 0.021, 0.019))
    worse = written.best(k=2).ranked[1]
    assert worse.sentence.endswith(
        "2.0 points (0.4 to 3.6) above the base: worse, decided after 3 of at most 10 pairs."
    )
    assert worse.verdict == "worse"


def test_a_study_that_selects_on_test_labels_says_so(tmp_path: Path) -> None:
    written = Written(tmp_path, objective="test_error", allow_test_selection=True)
    written.add("a", BASE)
    assert written.best().sentence.endswith("; selected on test labels.")


def test_runs_that_failed_are_told_with_those_that_did_not(written: Written) -> None:
    written.add("a", BASE)
    written.add("a", {(4, 4): math.nan, (5, 5): math.nan, (1, 1): math.nan}, state="failed")
    answer = written.best()
    assert answer.ranked[0].failed == 2  # (1, 1) was made again, and ended
    assert "; 2 more of its runs failed." in answer.sentence


def test_a_training_file_of_another_config_says_its_own_sentence(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.01, -0.03))
    base = written.best().ranked[1]
    assert written.best().to_yaml(base).startswith("# Rank 2 of study first: The base has 12.0 %")


def test_the_headline_is_short_and_claims_no_more_than_the_sentence(tmp_path: Path) -> None:
    said = {
        "t0000 leads the search with 10.0 % validation error, not yet confirmed": ("search", (0.0, 0.0, 0.0)),
        "c0000 is better than the base: 10.0 % validation error": ("confirm", (-0.02, -0.021, -0.019)),
        "c0000 ranks first with 10.0 % validation error, undecided against the base": (
            "confirm",
            (-0.02, -0.01, -0.03),
        ),
        "c0000 is equivalent to the base within 1 point: 12.0 % validation error": (
            "confirm",
            (-0.0005, -0.001, 0.0),
        ),
        "The base ranks first with 12.0 % validation error: undecided against c0000": (
            "confirm",
            (0.01, 0.02, 0.03),
        ),
        "The base is better than c0000: 12.0 % validation error": ("confirm", (0.02, 0.021, 0.019)),
    }
    for number, (headline, (role, by)) in enumerate(said.items()):
        written = Written(tmp_path / str(number))
        if role == "search":
            written.add("a", {(0, 0): 0.1}, "search")
        else:
            written.add("a", moved(BASE, *by))
            written.add("base", BASE)
        assert written.best().headline == headline
    written = Written(tmp_path / "one run")
    pair = next(iter(BASE))
    written.add("a", {pair: 0.1})
    written.add("base", {pair: 0.12})
    assert written.best().headline == "c0000 ranks first with 10.0 % validation error, " + (
        "not compared with the base"
    )
    written = Written(tmp_path / "base")
    written.add("base", {(0, 0): 0.1}, "search")
    assert (
        written.best().headline == "The base leads the search with 10.0 % validation error, not yet confirmed"
    )


def test_the_paper_against_the_base_is_answered_also_where_another_is_first(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.021, -0.019))
    written.add("paper", moved(BASE, 0.02, 0.021, 0.019))
    answer = written.best()
    assert answer.headline.startswith("c0003 is better than the base")
    assert answer.sentence.startswith(answer.ranked[0].sentence)
    assert "The paper's config has 14.0 % validation error" in answer.sentence
    assert answer.sentence.endswith("above the base: worse, decided after 3 of at most 10 pairs.")


def test_where_the_paper_is_first_it_is_told_once(written: Written) -> None:
    written.add("base", BASE)
    written.add("paper", moved(BASE, -0.02, -0.021, -0.019))
    answer = written.best()
    assert answer.headline == "The paper's config is better than the base: 10.0 % validation error"
    assert answer.sentence.count("paper") == 1


def test_a_paper_whose_runs_all_failed_is_told_as_not_compared(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", BASE)
    written.add("paper", BASE, state="failed")
    assert "The paper's config is not compared: none of its runs" in written.best().sentence


def test_a_base_that_is_better_than_all_others_is_told_as_such(written: Written) -> None:
    worse = moved(BASE, 0.02, 0.021, 0.019)
    for config, runs in (("base", BASE), ("paper", worse), ("a", worse)):
        written.add(config, runs)
    answer = written.best()
    assert answer.headline == (
        "The base is better than the paper's config and c0006: 12.0 % validation error"
    )


def test_a_base_that_ranks_first_says_against_whom_it_is_what(written: Written) -> None:
    written.add("base", BASE)
    written.add("paper", moved(BASE, 0.0005, 0.001, 0.0))
    written.add("a", moved(BASE, 0.02, 0.021, 0.019))
    written.add("b", moved(BASE, 0.01, 0.02, 0.03))
    assert written.best().headline == (
        "The base ranks first with 12.0 % validation error: better than c0006, "
        "equivalent to the paper's config within 1 point, undecided against c0009"
    )


def test_where_all_that_was_sampled_stopped_early_the_answer_says_so(written: Written) -> None:
    written.add("base", {(0, 0): 0.2}, "search")
    written.add("a", {(0, 0): 0.4}, "search", state="pruned")
    written.add("b", {(0, 0): math.nan}, "search", state="failed")
    written.add("base", BASE)
    finished(written)
    assert written.best().sentence.endswith(
        "No config of the search was confirmed: all 2 trials that the search sampled ended early "
        "(1 pruned · 1 failed)."
    )


def test_where_none_is_ahead_of_the_base_the_answer_says_so(written: Written) -> None:
    written.add("base", {(0, 0): 0.2}, "search")
    written.add("a", {(0, 0): 0.3}, "search")
    written.add("base", BASE)
    written.add("paper", moved(BASE, -0.02, -0.021, -0.019))
    finished(written)
    answer = written.best()
    assert answer.headline == "The paper's config is better than the base: 10.0 % validation error"
    assert answer.sentence.endswith(
        "No config of the search was confirmed: none is ahead of the base on the runs they share."
    )


def test_where_the_budget_ended_the_study_before_a_confirmation_the_answer_says_so(written: Written) -> None:
    written.add("base", {(0, 0): 0.2}, "search")
    written.add("a", {(0, 0): 0.1}, "search")
    finished(written, "stopped", stop_reason="budget.usd of 3 is spent")
    answer = written.best()
    assert answer.headline == "t0001 leads the search with 10.0 % validation error, not yet confirmed"
    assert answer.sentence.endswith(
        "No config of the search was confirmed: the study stopped before (budget.usd of 3 is spent)."
    )


@pytest.mark.parametrize("state", ["new", "running"])
def test_a_study_that_may_still_confirm_gives_no_reason_why_it_has_not(written: Written, state: str) -> None:
    written.add("base", {(0, 0): 0.2}, "search")
    written.add("a", {(0, 0): 0.1}, "search")
    finished(written, state)
    assert "No config of the search" not in written.best().sentence


def test_while_the_study_runs_the_answer_is_so_far_and_says_what_is_to_come(written: Written) -> None:
    written.add("base", {(0, 0): 0.2}, "search")
    written.add("a", {(0, 0): 0.1}, "search")
    written.add("b", {(0, 0): 0.05}, "search", state="running")
    finished(written, "running", stage="search", trials=12, confirmations=36)
    answer = written.best()
    assert answer.headline == "So far: t0001 leads the search with 10.0 % validation error"
    assert answer.to_come == "10 trials, then a confirmation of at most 36 runs"
    assert answer.sentence.endswith(f"; not yet confirmed. To come: {answer.to_come}.")
    finished(written, "running", stage="confirm", trials=3, confirmations=4)
    written.add("base", BASE)
    assert written.best().to_come == "at most 1 run of the confirmation"
    finished(written)
    assert written.best().to_come is None and "To come" not in written.best().sentence


def test_the_note_explains_every_word_of_the_verdict(tmp_path: Path) -> None:
    written = Written(tmp_path, confirm={"configs": 2, "runs": 5, "margin": "0.5 points"})
    written.add("base", BASE)
    written.add("a", BASE)
    note = written.best().note
    for word in ("Better or worse:", "Equivalent: all of it lies within 0.5 points of 0.", "Undecided:"):
        assert word in note
    assert "for 3 comparisons" in note
    loss = Written(tmp_path / "loss", objective="validation_loss")
    loss.add("base", BASE)
    loss.add("a", BASE)
    assert "Equivalent" not in loss.best().note and "Undecided" in loss.best().note


def test_the_terminal_shows_the_headline_first_then_the_sentence_and_the_note(
    written: Written, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "out", Console(width=80))
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.021, -0.019))
    answer = written.best()
    print_answer(answer, "cbe best first", as_json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"{answer.headline} {answer.sentence}")
    assert answer.note in told
    print_answer(answer, "cbe best first", as_json=True)
    plain = json.loads(capsys.readouterr().out)
    assert (plain["headline"], plain["sentence"]) == (answer.headline, answer.sentence)


def test_the_first_of_a_live_screen_is_the_first_of_the_answer(tmp_path: Path) -> None:
    draw = random.Random(0)
    for number in range(60):
        written = Written(tmp_path / str(number))
        for config in ("base", "paper", "a", "b", "c"):
            searched = {(0, n): round(draw.random(), 2) for n in range(draw.randint(1, 3))}
            written.add(config, searched, "search", state=draw.choice(["completed", "completed", "pruned"]))
            if draw.random() < 0.4:
                runs = {(n, n): round(draw.random(), 2) for n in range(1, draw.randint(2, 4))}
                written.add(config, runs)
        rows = written.folder.table("trials").to_pylist()
        first = leader(rows, written.study)
        if first is None:
            continue
        ranked = written.best().ranked[0]
        assert first.preset or first.trial == ranked.name
        assert (first.preset, first.n) == (ranked.preset, ranked.n)
        assert first.mean == pytest.approx(ranked.mean)
        assert written.best().confirmed == (first.role == "confirm")
