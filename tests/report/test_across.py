"""The best of several studies: what is ranked, what is compared, and what is one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

import cbe
from cbe.errors import InputError
from cbe.report.intervals import error_interval
from tests.conftest import Cbe
from tests.made import Made, whole

POINT = {"ensemble.heads": 4, "loss.weights.lb": 1.0}

OTHER = {"ensemble.heads": 6, "loss.weights.lb": 1.0}


def test_a_condition_limits_what_is_ranked_but_not_what_it_is_compared_with(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for pair, by in (((1, 1), 0.0), ((2, 2), 0.01), ((3, 3), 0.03)):
        made.trial(0.05 + by, POINT, role="confirm", pair=pair)
        made.trial(0.08 + by, OTHER, role="confirm", pair=pair)
        made.trial(0.10 + by / 2, preset="base", role="confirm", pair=pair)
        made.trial(0.02 + by, preset="paper", role="confirm", pair=pair)
    results = cbe.open_store(str(tmp_path))
    free, bound = results.best("made", 9), results.best("made", 9, "ensemble_heads = 6")
    assert [each.preset or each.point["ensemble.heads"] for each in free.ranked] == ["paper", 4, 6, "base"]
    # The paper's config, which has five heads, is better; but it was not asked for.
    assert [each.preset or each.point["ensemble.heads"] for each in bound.ranked] == [6, "paper", "base"]
    assert bound.ranked[0].versus_base == free.ranked[2].versus_base
    assert bound.where == "ensemble_heads = 6"
    assert "where ensemble_heads = 6" in " ".join(bound.to_yaml().split("\n# "))
    for refused in (
        "headz = 6",
        "momentum < 1",
        "1 = 1) or (1 = 1",
        "true; drop view trials",
        "ensemble_heads = 99",
    ):
        if refused == "1 = 1) or (1 = 1":
            assert len(results.best("made", 9, refused).ranked) == 4  # odd, and harmless
        else:
            with pytest.raises(InputError):
                results.best("made", 1, refused)


def test_a_config_of_several_studies_is_one_and_so_is_a_run_of_several(tmp_path: Path) -> None:
    errors = {(0, 0): 0.05, (1, 0): 0.07, (2, 0): 0.06}
    for name, pairs in (("first", [(0, 0), (1, 0)]), ("second", [(1, 0), (2, 0)])):
        made = Made(tmp_path, name, confirm="off")
        for pair in pairs:
            made.trial(errors[pair], POINT, pair=pair)
            made.trial(0.09 + pair[0] / 100, preset="base", pair=pair)
        made.trial(0.061, OTHER)
    (task,) = cbe.open_store(str(tmp_path)).best_of_all(2)
    assert task.title == "digits, 40 labels"
    assert not task.confirmed
    best, other = task.ranked
    values = list(errors.values())
    assert (best.studies, best.n) == (("first", "second"), 3)
    assert best.mean == pytest.approx(0.06)
    assert best.interval == pytest.approx(error_interval(values, images=200))  # not of four runs
    assert (best.name, other.name) == ("first/t0000", "first/t0004")
    wanted = stats.ttest_rel(values, [0.09, 0.10, 0.11])
    assert best.versus_base is not None
    assert best.versus_base.p == pytest.approx(wanted.pvalue)
    assert (other.n, other.interval) == (1, None)


def test_confirmed_configs_decide_and_configs_of_other_images_stand_by_themselves(tmp_path: Path) -> None:
    first = Made(tmp_path, "first")
    first.trial(0.01, OTHER)  # the search flatters
    first.trial(0.05, POINT)
    first.trial(0.06, POINT, role="confirm", pair=(1, 1))
    elsewhere = Made(tmp_path, "elsewhere", data={"labels": 80, "validation": 200})
    elsewhere.trial(0.30, POINT)
    elsewhere.trial(0.25, OTHER, state="pruned")
    elsewhere.trial(0.25, OTHER, state="failed", pair=(2, 0))
    elsewhere.trial(0.20, OTHER, pair=(1, 0))  # lost on most seeds: after what was trained to its end on most
    few, many = cbe.open_store(str(tmp_path)).best_of_all(5)
    assert [few.title, many.title] == ["digits, 40 labels", "digits, 80 labels"]
    assert (few.confirmed, [each.mean for each in few.ranked]) == (True, [0.06])
    assert (many.confirmed, [each.mean for each in many.ranked]) == (False, [0.30, 0.20])


def test_a_config_of_all_studies_has_the_name_of_its_first_trial_after_9999_trials(tmp_path: Path) -> None:
    made = Made(tmp_path, confirm="off")
    made.trial(0.05, POINT, pair=(0, 0), trial="t10000")
    made.trial(0.05, POINT, pair=(1, 0), trial="t9999")
    assert cbe.open_store(str(tmp_path)).best_of_all()[0].ranked[0].name == "t9999"


def test_intervals_across_studies_count_on_as_many_images_as_a_driver_found(tmp_path: Path) -> None:
    made = Made(tmp_path, confirm="off", data={"validation": 0.2})
    for seed in range(3):
        made.trial(0.0, POINT, pair=(seed, 0))
    facts = {"classes": ["cat", "dog"], "validation": 360, "test": None}
    made.folder.write("data.json", json.dumps(facts).encode())
    (task,) = cbe.open_store(str(tmp_path)).best_of_all()
    assert task.ranked[0].interval == pytest.approx(error_interval([0.0] * 3, images=360))


def test_what_was_lost_on_few_seeds_keeps_its_place(tmp_path: Path) -> None:
    made = Made(tmp_path, confirm="off")
    for seed in (0, 1):
        made.trial(0.05, POINT, pair=(seed, 0))
        made.trial(0.40, OTHER, pair=(seed, 0))
    made.trial(0.30, POINT, state="pruned", pair=(2, 0))
    (task,) = cbe.open_store(str(tmp_path)).best_of_all(2)
    assert [each.mean for each in task.ranked] == pytest.approx([0.05, 0.40])


def test_only_runs_beside_a_base_of_the_same_study_are_compared_with_it(tmp_path: Path) -> None:
    with_base, without = Made(tmp_path, "first", confirm="off"), Made(tmp_path, "second", confirm="off")
    for seed, by in ((0, 0.0), (1, 0.02)):
        with_base.trial(0.10 + by, POINT, pair=(seed, 0))
        with_base.trial(0.40 + by / 2, preset="base", pair=(seed, 0))
        without.trial(0.30, POINT, pair=(seed, 0))  # made with other code, say
    placed = cbe.open_store(str(tmp_path)).best_of_all(2)[0].ranked[0]
    assert placed.mean == pytest.approx(0.205)
    assert placed.versus_base is not None
    assert placed.versus_base.mean == pytest.approx(-0.295)


def test_a_confirmation_on_what_was_searched_since_is_none(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for pair in ((0, 0), (1, 1)):  # the study was given seed 1 later
        made.trial(0.05, POINT, pair=pair)
    made.trial(0.05, POINT, role="confirm", pair=(1, 1))
    (task,) = cbe.open_store(str(tmp_path)).best_of_all()
    assert not task.confirmed


def test_studies_that_confirmed_nothing_yet_are_named(cbe_: Cbe, tmp_path: Path) -> None:
    whole(tmp_path / "results", "old")
    Made(tmp_path / "results", "new").trial(0.001, POINT)
    (task,) = cbe.open_store(str(tmp_path / "results")).best_of_all()
    assert (task.confirmed, task.unconfirmed) == (True, ("new",))
    assert "left out, having confirmed nothing yet: new" in cbe_("best").words


def test_listed_labels_are_a_task_of_their_own_and_a_lost_test_error_is_none(tmp_path: Path) -> None:
    Made(tmp_path, "drawn").trial(0.05, POINT, last_test_error=float("nan"))
    Made(tmp_path, "listed", data={"label_indices": list(range(40)), "validation": 200}).trial(0.04, POINT)
    drawn, listed = cbe.open_store(str(tmp_path)).best_of_all()
    assert drawn.title == "digits, 40 labels"
    assert listed.title.startswith("digits, 40 listed (")
    assert drawn.ranked[0].test_error is None


def test_a_condition_chooses_configs_and_never_drops_their_bad_runs(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for seed, error in enumerate((0.05, 0.09, 0.13), start=1):
        made.trial(error, POINT, role="confirm", pair=(seed, seed))
        made.trial(0.2, OTHER, role="confirm", pair=(seed, seed))
    results = cbe.open_store(str(tmp_path))
    ranked = results.best("made", where="last_validation_error < 0.1").ranked
    assert [(each.mean, each.n) for each in ranked] == [(pytest.approx(0.09), 3)]
    for where in ("ensemble_heads = 4", "heads = 4"):  # the short name of a column does, too
        (only,) = results.best("made", where=where).ranked
        assert only.point == POINT
    (task,) = results.best_of_all(9, "last_validation_error < 0.1")
    assert [(each.mean, each.n) for each in task.ranked] == [(pytest.approx(0.09), 3)]


@pytest.mark.parametrize(
    "where", ["last_test_error < 0.1", "trial in (select trial from metrics where test_error < 0.1)"]
)
def test_nothing_is_chosen_by_test_labels(tmp_path: Path, where: str) -> None:
    whole(tmp_path)
    results = cbe.open_store(str(tmp_path))
    with pytest.raises(InputError, match="not chosen by test labels"):
        results.best("made", where=where)
    with pytest.raises(InputError, match="not chosen by test labels"):
        results.best_of_all(where=where)


def test_a_store_with_no_answer_says_why_in_a_line(cbe_: Cbe, tmp_path: Path) -> None:
    told = cbe_("best")
    assert told.code == 2
    assert "no study has a trial that was trained to its end" in told.err
    made = Made(tmp_path / "results")
    told = cbe_("best", "made")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "has no trials yet" in told.err
    for _ in range(2):
        made.trial(
            None, POINT, state="failed", steps=0, error_class="NonFiniteLoss", error_text="loss is nan"
        )
    told = cbe_("best", "made")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "2 failed, the last one with NonFiniteLoss: loss is nan" in told.err
    assert cbe_("best", "--yaml").code == 2


def test_the_command_gives_the_best_of_all(cbe_: Cbe, tmp_path: Path) -> None:
    for name in ("first", "second"):
        whole(tmp_path / "results", name)
    shown = cbe_("best", "-k", "2")
    assert shown.code == 0
    assert "digits, 40 labels" in shown.words
    assert "first/t0006 first, second 3 6.40 −6.60 7.40 (5.89 to 7.11) (−7.35 to −5.85)" in shown.words
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    assert '"title": "digits, 40 labels"' in cbe_("best", "--json").out
    assert "no trial that was trained to its end meets" in cbe_("best", "--where", "ensemble_heads > 99").err
