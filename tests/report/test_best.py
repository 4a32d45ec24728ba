"""Which config is best: figures against scipy and by hand, sentences that claim no more than they show."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import special, stats

from cbe.cli import console
from cbe.cli.best import print_answer
from cbe.configs import Config, leader
from cbe.errors import ConfigError, InputError
from cbe.names import config_names
from cbe.report.best import Answer, best
from cbe.report.front import front
from cbe.report.intervals import error_interval, loss_interval, mean_interval
from cbe.report.lookup import read_study
from cbe.report.paired import Difference, paired
from cbe.report.wording import against, figure
from cbe.spec import Objective, StudyConfig, TrainConfig, read_config
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.verdicts import compare

BASE = {(1, 1): 0.10, (2, 2): 0.12, (3, 3): 0.14}
Runs = dict[tuple[int, int], float]


class Written:
    """A study's folder into which a test writes trials."""

    def __init__(self, store: Path, **sections: Any) -> None:
        self.study = StudyConfig.model_validate({"name": "first", **sections})
        self.folder: StudyFolder = Store.open(str(store)).study("first")
        self.folder.write(STUDY_FILE, yaml.safe_dump(self.study.to_plain()).encode())
        self._made = 0

    def add(
        self, config: str, runs: Runs, role: str = "confirm", state: str = "completed", **known: Any
    ) -> list[str]:
        """One trial for every (seed, split) and its objective; configs are told apart by their name."""
        names = []
        for (seed, split), value in runs.items():
            names.append(f"{role[0] if role == 'confirm' else 't'}{self._made:04d}")
            self._made += 1
            point = {"ensemble.heads": 3}
            row = {
                "trial": names[-1],
                "role": role,
                "preset": config if config in ("paper", "base") else None,
                "state": state,
                "config_id": config,
                "params": json.dumps(point),
                "config": json.dumps(resolve(self.study.train_config(point, seed, split)).to_plain()),
                "seed": seed,
                "label_split": split,
                "objective": value,
                "values": [value],
            }
            self.folder.append("trials", [row | known])
        return names

    def best(self, k: int = 1) -> Answer:
        return best(self.folder, k)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "results")


def moved(runs: Runs, *by: float) -> Runs:
    return {pair: value + each for (pair, value), each in zip(runs.items(), by, strict=True)}


def test_the_best_is_the_one_with_the_best_mean_of_the_confirmation_whatever_the_search_said(
    written: Written,
) -> None:
    for config, searched in (("a", 0.01), ("b", 0.05), ("base", 0.2)):
        written.add(config, {(0, 0): searched}, "search")
    a, b = moved(BASE, 0.05, 0.05, 0.05), moved(BASE, -0.02, -0.01, -0.03)
    for config, runs in (("base", BASE), ("a", a), ("b", b)):
        written.add(config, runs)
    answer = written.best(k=3)
    assert answer.confirmed
    assert [(each.rank, each.config_id) for each in answer.ranked] == [(1, "b"), (2, "base"), (3, "a")]
    first = answer.ranked[0]
    assert (first.n, first.searched) == (3, 0.05)
    assert first.mean == pytest.approx(0.10)
    assert first.seeds == ((1, 1), (2, 2), (3, 3))
    assert first.point == {"ensemble.heads": 3}


def test_intervals_and_p_values_are_those_of_scipy(written: Written) -> None:
    ours = moved(BASE, -0.02, -0.01, -0.035)
    paper = moved(BASE, 0.01, -0.01, 0.02)
    for config, runs in (("base", BASE), ("paper", paper), ("a", ours)):
        written.add(config, runs)
    first = written.best().ranked[0]
    # By default a tenth of the images validates, how many the errors show: 200, by the 0.035 and the 0.01.
    mean = sum(ours.values()) / 3
    inner = (mean * 600 + 0.5) / 601
    scale = math.sqrt((stats.tvar(list(ours.values())) + 1 / (12 * 200**2)) / 3) / (inner * (1 - inner))
    wanted = stats.t.interval(0.95, 2, loc=special.logit(inner), scale=scale)
    assert first.interval == pytest.approx(tuple(special.expit(wanted)))
    found, wanted = first.versus_paper, stats.ttest_rel(list(ours.values()), list(paper.values()))
    assert found is not None
    assert found.p == pytest.approx(wanted.pvalue)
    assert found.interval == pytest.approx(tuple(wanted.confidence_interval()))
    assert found.n == 3


def test_the_interval_to_the_base_is_the_one_of_the_verdict(written: Written) -> None:
    ours = moved(BASE, -0.02, -0.01, -0.035)
    written.add("base", BASE)
    written.add("a", ours)
    first, judged = written.best().ranked[0], compare(written.study, ours, BASE, images=200)
    assert judged is not None and first.versus_base is not None
    assert (first.versus_base.mean, first.versus_base.interval) == (judged.mean, judged.interval)
    assert (first.verdict, first.pairs_needed) == (judged.said, judged.pairs_needed)


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


def test_where_more_is_better_the_largest_mean_is_first_and_above_is_better(tmp_path: Path) -> None:
    written = Written(tmp_path, objective={"metric": "validation_loss", "direction": "maximize"})
    base = {(1, 1): 1.000, (2, 2): 1.010, (3, 3): 1.020}
    written.add("base", base)
    written.add("a", moved(base, 0.100, 0.102, 0.101))
    answer = written.best()
    assert answer.ranked[0].config_id == "a"
    assert answer.ranked[0].verdict == "better"
    assert answer.headline == "c0003 is better than the base: 1.111 validation loss"
    assert "0.101 (0.085 to 0.117) above the base: better, decided after 3" in answer.sentence


def test_one_run_gives_no_interval_and_no_verdict(written: Written) -> None:
    written.add("base", {(1, 1): 0.2})
    written.add("a", {(1, 1): 0.1})
    answer = written.best()
    first = answer.ranked[0]
    assert (first.n, first.interval, first.versus_base, first.verdict) == (1, None, None, None)
    assert answer.sentence == (
        "c0001 has 10.0 % validation error (n = 1: no interval can be given), 10.0 points below the base on "
        "the one run they share."
    )


def test_runs_are_compared_on_the_seeds_and_splits_they_share_only(written: Written) -> None:
    written.add("base", {(1, 1): 0.3, (2, 2): 0.31, (9, 9): 0.9})
    written.add("a", {(1, 1): 0.1, (2, 2): 0.12, (2, 3): 0.5})
    found = written.best().ranked[0]
    assert found.versus_base is not None
    assert found.versus_base.n == 2
    assert found.versus_base.mean == pytest.approx(-0.195)
    assert found.n == 3


def test_configs_without_two_runs_in_common_with_the_base_are_not_compared(written: Written) -> None:
    written.add("base", {(8, 8): 0.3, (9, 9): 0.3})
    written.add("a", {(1, 1): 0.1, (2, 2): 0.12})
    answer = written.best()
    assert answer.ranked[0].verdict is None
    assert "fewer than two runs in common with the base: not compared" in answer.sentence


def test_before_any_confirmation_the_search_ranks_and_judges_nothing(written: Written) -> None:
    written.add("base", BASE, "search")
    written.add("a", moved(BASE, -0.02, -0.021, -0.019), "search")
    answer = written.best()
    assert not answer.confirmed
    first = answer.ranked[0]
    assert (first.config_id, first.verdict) == ("a", None)
    assert first.searched == first.mean
    assert answer.sentence.endswith("below the base; not yet confirmed.")


def test_presets_confirmed_ahead_of_the_others_do_not_pass_for_the_confirmation(written: Written) -> None:
    written.add("base", {(0, 0): 0.3}, "search")
    written.add("a", {(0, 0): 0.1}, "search")
    written.add("base", BASE)
    answer = written.best()
    assert not answer.confirmed
    assert answer.ranked[0].config_id == "a"


def test_a_study_of_the_presets_alone_can_be_confirmed(written: Written) -> None:
    written.add("base", {(0, 0): 0.3}, "search")
    written.add("base", BASE)
    assert written.best().confirmed


def test_a_config_that_the_search_stopped_on_some_seeds_comes_after_those_it_did_not(
    written: Written,
) -> None:
    written.add("lucky", {(0, 0): 0.01}, "search")
    written.add("lucky", {(1, 0): 0.9}, "search", state="pruned")
    written.add("steady", {(0, 0): 0.1, (1, 0): 0.1}, "search")
    assert [each.config_id for each in written.best(k=2).ranked] == ["steady", "lucky"]


def test_configs_of_the_same_mean_rank_in_the_order_the_search_tried_them(written: Written) -> None:
    for config in ("z", "m", "a"):
        written.add(config, {(0, 0): 0.5}, "search")
    for config in ("a", "m", "z"):
        written.add(config, {(1, 1): 0.25, (2, 2): 0.25})
    assert [each.config_id for each in written.best(k=3).ranked] == ["z", "m", "a"]


def test_where_the_base_is_best_the_answer_is_the_base(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, 0.01, 0.02, 0.03))
    answer = written.best()
    assert answer.ranked[0].preset == "base"
    assert answer.sentence.startswith("The base has 12.0 % validation error")
    assert "c0003 has 14.0 % validation error" in answer.sentence
    assert "2.0 points (−14.3 to 18.3) above the base: undecided" in answer.sentence


def test_the_presets_stand_beside_the_k_best_with_their_own_ranks(written: Written) -> None:
    for rank, config in enumerate(("a", "b", "paper", "c", "base")):
        written.add(config, moved(BASE, *[rank / 100] * 3))
    found = written.best(k=2).ranked
    assert [(each.rank, each.config_id, each.preset) for each in found] == [
        (1, "a", None),
        (2, "b", None),
        (3, "paper", "paper"),
        (5, "base", "base"),
    ]


@pytest.mark.parametrize("poison", [0.0, 1.0, math.nan])
def test_test_errors_change_neither_rank_nor_sentence(tmp_path: Path, poison: float) -> None:
    answers = []
    for store, error in (("clean", 0.3), ("poisoned", poison)):
        written = Written(tmp_path / store)
        written.add("base", BASE, last_test_error=0.3)
        written.add("a", moved(BASE, -0.02, -0.01, -0.03), last_test_error=0.3)
        written.add("b", moved(BASE, 0.02, 0.01, 0.03), last_test_error=error)
        answers.append(written.best(k=3))
    clean, poisoned = answers
    assert [each.config_id for each in clean.ranked] == [each.config_id for each in poisoned.ranked]
    assert [each.sentence for each in clean.ranked] == [each.sentence for each in poisoned.ranked]
    shown = poisoned.ranked[2].test_error
    assert shown is None if math.isnan(poison) else shown == pytest.approx(poison)


def test_a_study_that_selects_on_test_labels_says_so(tmp_path: Path) -> None:
    written = Written(tmp_path, objective="test_error", allow_test_selection=True)
    written.add("a", BASE)
    assert written.best().sentence.endswith("; selected on test labels.")


def test_the_same_run_made_twice_is_one_run(written: Written) -> None:
    written.add("a", {(0, 0): 0.1, (1, 0): 0.2}, "search")
    written.add("a", {(0, 0): 0.1}, "search")
    first = written.best().ranked[0]
    assert (first.n, len(first.trials)) == (2, 3)
    assert first.mean == pytest.approx(0.15)


@pytest.mark.parametrize("state", ["running", "pruned", "failed", "interrupted"])
def test_only_runs_trained_to_their_end_count(written: Written, state: str) -> None:
    written.add("a", {(0, 0): 0.2}, "search")
    written.add("b", {(0, 0): 0.1}, "search", state=state)
    finished(written, "running")
    answer = written.best(k=5)
    assert [each.config_id for each in answer.ranked] == ["a"]
    assert answer.counts == {"completed": 1, state: 1}


def test_a_run_without_a_figure_does_not_count(written: Written) -> None:
    written.add("a", {(0, 0): 0.2, (1, 0): math.nan}, "search")
    assert written.best().ranked[0].n == 1


def test_runs_that_failed_are_told_with_those_that_did_not(written: Written) -> None:
    written.add("a", BASE)
    written.add("a", {(4, 4): math.nan, (5, 5): math.nan, (1, 1): math.nan}, state="failed")
    answer = written.best()
    assert answer.ranked[0].failed == 2  # (1, 1) was made again, and ended
    assert "; 2 more of its runs failed." in answer.sentence


def test_a_study_with_failures_only_says_what_there_is_and_what_to_do(written: Written) -> None:
    error = {"error_class": "NonFiniteLoss", "error_text": "loss is not finite at step 3"}
    written.add("a", {(0, 0): math.nan, (1, 0): math.nan}, "search", state="failed", **error)
    written.add("b", {(0, 0): 0.4}, "search", state="pruned")
    with pytest.raises(InputError) as caught:
        written.best()
    said = str(caught.value)
    for part in ("2 failed", "1 pruned", "NonFiniteLoss: loss is not finite at step 3", "cbe resume first"):
        assert part in said


def test_a_study_without_trials_says_how_to_start_them(written: Written) -> None:
    with pytest.raises(
        InputError, match="has no trials yet; wait for them, or start them with `cbe resume first`"
    ):
        written.best()


def test_an_unknown_study_is_refused_with_the_nearest_name(written: Written, tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "results"))
    with pytest.raises(InputError, match=r"study frist: .* did you mean first\?"):
        best(store.study("frist"))
    with pytest.raises(InputError, match=r"study zzz: .* there are first"):
        best(store.study("zzz"))
    with pytest.raises(InputError, match="the store has none; check --store"):
        best(Store.open(str(tmp_path / "nowhere")).study("zzz"))


def test_a_study_file_spoiled_by_hand_is_an_error_that_names_it(written: Written) -> None:
    written.folder.write(STUDY_FILE, b"name: [")
    with pytest.raises(InputError, match=r"first/study\.yaml:1: not valid YAML"):
        read_study(written.folder)
    written.folder.write(STUDY_FILE, b"name: first\nsampler: best\n")
    with pytest.raises(ConfigError, match=r"first/study\.yaml:2 sampler"):
        read_study(written.folder)


@pytest.mark.parametrize("k", [0, -1])
def test_a_number_of_configs_below_one_is_refused(written: Written, k: int) -> None:
    with pytest.raises(InputError, match="give 1 or more"):
        written.best(k)


def test_the_front_holds_the_configs_that_none_beats_in_all_objectives(tmp_path: Path) -> None:
    sides = [{"metric": "validation_error"}, {"metric": "macs", "direction": "maximize"}]
    written = Written(tmp_path, objective=sides, sampler="nsga2", scheduler="none")
    figures: dict[str, Sequence[Sequence[float]]] = {
        "precise": [(0.125, 10.0), (0.375, 30.0)],
        "large": [(0.5, 50.0)],
        "beaten": [(0.25, 19.0)],
        "equal": [(0.25, 20.0)],
    }
    for config, values in figures.items():
        for seed, (error, macs) in enumerate(values):
            written.add(config, {(seed, 0): error}, "search", values=[error, macs])
    written.add("pruned", {(0, 0): 0.01}, "search", state="pruned", values=[0.01, 99.0])
    found = written.best().front
    assert {each.config_id for each in found} == {"precise", "equal", "large"}
    assert found[-1].config_id == "large"
    assert found[0].values == pytest.approx({"validation_error": 0.25, "macs": 20.0})


def test_with_one_objective_there_is_no_front(written: Written) -> None:
    written.add("a", BASE)
    assert written.best().front == ()


def test_the_answer_is_json(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.01, -0.03), last_test_error=math.nan)
    plain = json.loads(json.dumps(written.best(k=2).to_plain(), allow_nan=False))
    assert plain["ranked"][0]["versus_base"]["n"] == 3
    assert plain["sentence"] == plain["ranked"][0]["sentence"]


def test_the_best_config_is_a_training_file_on_its_first_seed(written: Written, tmp_path: Path) -> None:
    written.add("a", {(7, 3): 0.2, (5, 4): 0.1})
    answer = written.best()
    path = tmp_path / "best.yaml"
    path.write_text(answer.to_yaml(), "utf-8")
    config = read_config(TrainConfig, path)
    assert config == resolve(written.study.train_config({"ensemble.heads": 3}, 5, 4))
    comment = " ".join(line[2:] for line in path.read_text("utf-8").splitlines() if line.startswith("# "))
    assert comment == f"Rank 1 of study first: {answer.sentence}"


def test_a_training_file_of_another_config_says_its_own_sentence(written: Written) -> None:
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.01, -0.03))
    base = written.best().ranked[1]
    assert written.best().to_yaml(base).startswith("# Rank 2 of study first: The base has 12.0 %")


VALUES = st.lists(st.integers(0, 1000), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_any_paired_difference_is_that_of_scipy(thousandths: list[int], random: Any) -> None:
    ours = {(n, n): each / 1000 for n, each in enumerate(thousandths)}
    others = {pair: random.randint(0, 1000) / 1000 for pair in ours}
    found = paired(ours, others)
    assert found is not None
    differences = {round(1000 * (ours[pair] - others[pair])) for pair in ours}
    if len(differences) == 1:
        assert found.interval == (found.mean, found.mean)
        assert found.p == (1.0 if differences == {0} else 0.0)
        return
    wanted = stats.ttest_rel(list(ours.values()), list(others.values()))
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)
    assert found.interval == pytest.approx(tuple(wanted.confidence_interval()), rel=1e-6, abs=1e-9)


def test_runs_that_differ_by_the_same_amount_have_no_spread_whatever_rounding_leaves() -> None:
    ours, others = {(0, 0): 0.1, (1, 1): 0.3, (2, 2): 0.7}, {(0, 0): 0.2, (1, 1): 0.4, (2, 2): 0.8}
    assert len({ours[pair] - others[pair] for pair in ours}) > 1
    found = paired(ours, others)
    assert found is not None
    assert found.interval == (found.mean, found.mean)
    assert (found.mean, found.p) == (pytest.approx(-0.1), 0.0)
    assert paired(ours, ours) == Difference(0.0, (0.0, 0.0), 3, 1.0)


def test_equal_differences_of_errors_on_few_images_do_not_decide() -> None:
    ours, others = {(0, 0): 1 / 12, (1, 1): 3 / 12}, {(0, 0): 2 / 12, (1, 1): 4 / 12}
    found = paired(ours, others, images=12)
    assert found is not None and found.mean == pytest.approx(-1 / 12)
    assert found.interval[0] < -0.3 and found.interval[1] > 0.15 and found.p > 0.1
    wider = {(0, 0): 1 / 12, (1, 1): 8 / 12}  # whose own spread is larger
    assert paired(wider, others, images=12) == paired(wider, others)


def test_rounding_to_images_makes_no_config_better_than_its_equal() -> None:
    """Of two equal configs one is called better or worse in at most 1 of 20 studies, also on few images."""
    draw = np.random.default_rng(0)
    for images, n in ((12, 3), (12, 5), (50, 5)):
        wrong = 0
        for true in draw.beta(2, 18, (4000, n)):  # the error on each split
            counts = draw.binomial(images, true, (2, n))
            ours, others = ({(k, k): count / images for k, count in enumerate(each)} for each in counts)
            found = paired(ours, others, most=1.0, images=images)
            assert found is not None
            wrong += found.p < 0.05
        assert wrong / 4000 < 0.055, (images, n)


def test_the_table_fits_80_columns_with_whole_names_and_numbers(
    written: Written, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "out", Console(width=80))
    for config, by in (("base", 0.0), ("paper", 0.35), ("a", 0.2)):
        written.add(config, dict(zip(BASE, (0.1 + by, 0.55, 0.3 - by / 2), strict=True)))
    print_answer(written.best(), "cbe best first", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line[:1] in set("123") and line[1:2] == " "]
    assert [line.split()[1:3] for line in table] == [["base", "3"], ["c0006", "3"], ["paper", "3"]]
    assert max(map(len, lines)) <= 80 and "…" not in "".join(lines)


def test_one_value_has_no_interval() -> None:
    assert mean_interval("validation_error", [0.3]) is None


ERRORS = st.integers(1, 500).flatmap(
    lambda images: st.tuples(st.just(images), st.lists(st.integers(0, images), min_size=2, max_size=10))
)


@settings(max_examples=200, deadline=None)
@given(ERRORS)
def test_an_interval_of_errors_holds_their_mean_and_stays_between_0_and_1(
    counted: tuple[int, list[int]],
) -> None:
    images, wrong = counted
    errors = [each / images for each in wrong]
    low, high = error_interval(errors, images)
    assert 0 <= low <= sum(errors) / len(errors) <= high <= 1
    assert high - low > 1 / (2 * images * len(errors))  # also where all runs agree
    assert error_interval([1 - each for each in errors], images) == pytest.approx((1 - high, 1 - low))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=10))
def test_an_interval_of_losses_holds_their_mean_and_is_not_below_0(losses: list[float]) -> None:
    low, high = loss_interval(losses)
    mean = sum(losses) / len(losses)
    assert 0 <= low <= mean * (1 + 1e-9) and mean * (1 - 1e-9) <= high < math.inf


@pytest.mark.parametrize(
    ("mean", "spread", "images", "runs"),
    [
        *[(0.02, 0.008, 200, 3), (0.053, 0.033, 12, 3), (0.053, 0.033, 200, 3), (0.053, 0.033, 200, 5)],
        *[(0.053, 0.033, 200, 10), (0.15, 0.065, 200, 2), (0.5, 0.1, 200, 3), (0.9, 0.02, 12, 3)],
    ],
)
def test_19_of_20_intervals_of_an_error_hold_the_true_mean(
    mean: float, spread: float, images: int, runs: int
) -> None:
    draws = 2000
    generator = np.random.default_rng(0)
    both = mean * (1 - mean) / spread**2 - 1
    true = generator.beta(mean * both, (1 - mean) * both, (draws, runs))
    held = 0
    for errors in (generator.binomial(images, true) / images).tolist():
        low, high = error_interval(errors, images)
        held += low <= mean <= high
    assert held / draws > 0.935  # three standard errors below 95 %


def test_19_of_20_intervals_of_a_loss_hold_the_true_mean() -> None:
    generator = np.random.default_rng(0)
    draws = generator.gamma(16, 0.05, (2000, 3)).tolist()  # mean 0.8, standard deviation 0.2
    held = sum(low <= 0.8 <= high for low, high in map(loss_interval, draws))
    assert held / len(draws) > 0.935


def test_runs_without_any_error_leave_room_for_some() -> None:
    low, high = error_interval([0.0, 0.0], images=12)
    assert low == 0 and 0.1 < high < 0.3  # 24 images without an error
    assert error_interval([0.0, 0.0], images=1200)[1] < 0.004


def test_a_difference_of_errors_is_at_most_100_points() -> None:
    ours, others = {(0, 0): 0.1, (1, 1): 0.9}, {(0, 0): 0.9, (1, 1): 0.8}
    found = paired(ours, others, most=1.0)
    assert found is not None and found.interval == (-1.0, 1.0)
    open_ended = paired(ours, others)
    assert open_ended is not None and open_ended.interval[1] > 5


def test_a_config_is_called_by_its_first_trial_also_after_its_confirmation(written: Written) -> None:
    written.add("base", {(0, 0): 0.3}, "search")
    (searched,) = written.add("a", {(0, 0): 0.1}, "search")
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.021, -0.019))
    answer = written.best()
    assert [(each.config_id, each.name) for each in answer.ranked] == [("a", searched), ("base", "base")]
    assert answer.sentence.startswith("t0001 has 10.0 % validation error")


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


def test_an_end_that_is_not_zero_is_not_shown_as_zero() -> None:
    difference = Difference(-0.009, (-0.0176, -0.0004), 5, 0.04)
    assert against("validation_error", difference, "the base") == (
        "0.90 points (0.04 to 1.76) below the base"
    )


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("validation_error", 0.041, "4.1 % validation error"),
        ("test_error", 0.0, "0.0 % test error"),
        ("validation_loss", 0.25, "0.250 validation loss"),
    ],
)
def test_every_objective_is_written_in_its_unit(metric: str, value: float, said: str) -> None:
    assert figure(metric, value, None, 1).startswith(said)


def test_a_study_that_compares_more_configs_asks_more_of_each(tmp_path: Path) -> None:
    base = {(seed, seed): 0.2 for seed in range(1, 11)}
    better = moved(base, *(-0.02, -0.01) * 5)
    reach = []
    for configs in (1, 8):
        written = Written(tmp_path / str(configs), confirm={"configs": configs, "runs": 10})
        written.add("base", base)
        written.add("a", better)
        found = written.best().ranked[0].versus_base
        assert found is not None
        reach.append((found.n, found.interval[1] - found.interval[0]))
    assert reach[1] > reach[0]  # it takes more pairs, or has a wider interval


def test_a_config_that_was_decided_early_ranks_by_the_pairs_it_shares_with_the_base(written: Written) -> None:
    """The base went on to easier pairs for the other's sake, and has the lowest mean of all."""
    base = {(n, n): 0.3 if n < 4 else 0.02 for n in range(1, 11)}
    first_three = {pair: value for pair, value in base.items() if pair[0] < 4}
    written.add("base", base)
    written.add("a", moved(first_three, -0.05, -0.051, -0.049))
    written.add("b", moved(base, *(0.01, -0.01) * 5))
    answer = written.best()
    assert (answer.ranked[0].config_id, answer.ranked[0].rank) == ("a", 1)
    assert answer.ranked[0].mean > fmean(base.values())
    assert answer.headline == "c0010 is better than the base: 25.0 % validation error"


def test_a_config_that_ran_on_more_pairs_of_the_search_ranks_above_those_dropped_before(
    written: Written,
) -> None:
    pairs: Runs = {(0, 0): 0.3, (0, 1): 0.1, (0, 2): 0.1}
    written.add("base", pairs, "search")
    written.add("dropped", {(0, 0): 0.05}, "search")
    written.add("survivor", moved(pairs, -0.02, -0.02, -0.02), "search")
    written.add("behind", moved(pairs, 0.02, 0.02, 0.02), "search")
    names = [each.config_id for each in written.best(k=9).ranked]
    assert names == ["survivor", "base", "behind", "dropped"]


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


def finished(written: Written, state: str = "finished", **known: Any) -> None:
    written.folder.write("status.json", json.dumps({"state": state, "beat": time.time(), **known}).encode())


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


def test_a_front_of_thousands_is_the_same_as_by_comparing_all(written: Written) -> None:
    generator = random.Random(0)
    objectives = (Objective(metric="validation_error"), Objective(metric="macs"))
    costs = [(generator.randint(0, 50) / 50, float(generator.randint(0, 50))) for _ in range(400)]
    rows = [
        {
            **{"trial": f"t{number:04d}", "role": "search", "state": "completed", "preset": None},
            **{"config_id": str(number), "seed": 0, "label_split": 0, "objective": cost[0], "values": cost},
        }
        for number, cost in enumerate(costs)
    ]
    found = front([Config([row]) for row in rows], objectives, config_names(rows))
    by_hand = [
        cost for cost in costs if not any(o != cost and o[0] <= cost[0] and o[1] <= cost[1] for o in costs)
    ]
    assert sorted(tuple(point.values.values()) for point in found) == sorted(by_hand)


def test_an_error_that_guessing_would_make_is_called_so(written: Written) -> None:
    written.add("base", {(1, 1): 0.5, (2, 2): 0.45, (3, 3): 0.48})
    written.add("a", {(1, 1): 0.2, (2, 2): 0.25, (3, 3): 0.22})
    facts = {"classes": ["cat", "dog"], "validation": 12, "test": None}
    written.folder.write("data.json", json.dumps(facts).encode())
    first, base = written.best().ranked
    assert "chance" not in first.sentence
    assert base.sentence.endswith("; at chance level (50.0 % for 2 classes).")
    written.folder.delete("data.json")
    assert "chance" not in written.best().ranked[1].sentence


def test_intervals_count_on_as_many_images_as_the_driver_found(tmp_path: Path) -> None:
    written = Written(tmp_path, data={"validation": 0.2})
    errors = [0.25, 0.5, 0.25]  # seem to be counted on 4 images
    written.add("base", dict(zip(BASE, errors, strict=True)))
    facts = {"classes": ["cat", "dog"], "validation": 200, "test": None}
    written.folder.write("data.json", json.dumps(facts).encode())
    assert written.best().ranked[0].interval == pytest.approx(error_interval(errors, images=200))
    written.folder.delete("data.json")
    assert written.best().ranked[0].interval == pytest.approx(error_interval(errors, images=4))


def test_a_config_has_the_name_of_its_first_trial_also_after_9999_trials() -> None:
    trials = [{"trial": f"t{number}", "role": "search", "preset": None} for number in (10000, 9999)]
    assert config_names([{**trial, "config_id": "a"} for trial in trials]) == {"a": "t9999"}
