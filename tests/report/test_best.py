"""Which config is best: how configs rank, what counts as a run, and what the answer holds."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
from rich.console import Console

from cbe.cli import console
from cbe.cli.best import print_answer
from cbe.configs import Config
from cbe.errors import ConfigError, InputError
from cbe.names import config_names
from cbe.report.best import best
from cbe.report.front import front
from cbe.report.lookup import read_study
from cbe.spec import Objective, TrainConfig, read_config
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store
from tests.report.written import BASE, Runs, Written, finished, moved


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


def test_a_config_is_called_by_its_first_trial_also_after_its_confirmation(written: Written) -> None:
    written.add("base", {(0, 0): 0.3}, "search")
    (searched,) = written.add("a", {(0, 0): 0.1}, "search")
    written.add("base", BASE)
    written.add("a", moved(BASE, -0.02, -0.021, -0.019))
    answer = written.best()
    assert [(each.config_id, each.name) for each in answer.ranked] == [("a", searched), ("base", "base")]
    assert answer.sentence.startswith("t0001 has 10.0 % validation error")


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


def test_a_config_has_the_name_of_its_first_trial_also_after_9999_trials() -> None:
    trials = [{"trial": f"t{number}", "role": "search", "preset": None} for number in (10000, 9999)]
    assert config_names([{**trial, "config_id": "a"} for trial in trials]) == {"a": "t9999"}
