"""Two studies or two trials beside each other, compared only where they can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbe.errors import InputError
from cbe.report.diff import StudyDiff, TrialDiff, diff
from cbe.report.paired import paired
from cbe.store.folder import Store
from tests.conftest import Cbe
from tests.made import SECTIONS, Made, whole

FOUR = {"ensemble.heads": 4, "loss.weights.lb": 1.0}


def confirmed(store: Path, name: str, errors: tuple[float, ...], first: int = 1, **sections: Any) -> Made:
    """A study whose best config has these errors on so many new seeds and splits."""
    made = Made(store, name, **sections)
    made.trial(0.1, FOUR)
    for number, error in enumerate(errors, start=first):
        made.trial(error, FOUR, role="confirm", pair=(number, number))
    return made


def studies(store: Path) -> StudyDiff:
    found = diff(Store.open(str(store)), "one", "two")
    assert isinstance(found, StudyDiff)
    return found


def other(**training: Any) -> dict[str, Any]:
    return {"training": SECTIONS["training"] | training}


def test_settings_that_differ_are_listed_with_both_values(tmp_path: Path) -> None:
    confirmed(tmp_path, "one", (0.1, 0.2))
    confirmed(tmp_path, "two", (0.1, 0.2), **other(lr=0.03), search={"ensemble.heads": {"int": [2, 4]}})
    found = {each.key: (each.before, each.after) for each in studies(tmp_path).settings}
    assert found["training.lr"] == (0.06, 0.03)
    assert found["search.ensemble.heads.int"] == ([2, 8], [2, 4])
    assert found["search.loss.weights.lb"] == ({"float": [0.1, 10.0], "log": True}, None)
    assert "name" not in found


def test_the_best_configs_are_compared_on_the_runs_they_share(tmp_path: Path) -> None:
    confirmed(tmp_path, "one", (0.10, 0.12, 0.15))
    confirmed(tmp_path, "two", (0.15, 0.16, 0.30), first=2, **other(lr=0.03))
    found = studies(tmp_path)
    assert found.role == "confirm"
    assert found.difference == paired({(2, 2): 0.12, (3, 3): 0.15}, {(2, 2): 0.15, (3, 3): 0.16})
    assert "lies 2.0 points" in found.sentence
    assert "below the best of two, on 2 shared runs: not shown to be better or worse." in found.sentence


def test_a_clear_difference_is_called_better_or_worse(tmp_path: Path) -> None:
    confirmed(tmp_path, "one", (0.10, 0.11, 0.12))
    confirmed(tmp_path, "two", (0.20, 0.21, 0.225), **other(lr=0.03))
    store = Store.open(str(tmp_path))
    assert ": better." in studies(tmp_path).sentence
    turned = diff(store, "two", "one")
    assert isinstance(turned, StudyDiff) and ": worse." in turned.sentence


def test_the_searchs_own_runs_are_compared_with_a_warning(tmp_path: Path) -> None:
    for name, change, errors in (("one", {}, (0.1, 0.2)), ("two", other(lr=0.03), (0.15, 0.24))):
        made = Made(tmp_path, name, seeds=[0, 1], **change)
        for seed, error in enumerate(errors):
            made.trial(error, FOUR, pair=(seed, 0))
    found = studies(tmp_path)
    assert found.role == "search"
    assert "which chose them: not confirmed" in found.sentence


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"data": {"source": "parquet", "path": "x/pets", "labels": 40}}, "other data (digits and pets)."),
        (
            {"data": {"labels": 40, "validation": 100}},
            "other validation images (data.validation 200 and 100).",
        ),
        (
            {"objective": "validation_loss"},
            "another objective (validation_error, minimize and validation_loss",
        ),
    ],
)
def test_studies_that_measured_something_else_are_not_compared(
    tmp_path: Path, sections: dict[str, Any], why: str
) -> None:
    confirmed(tmp_path, "one", (0.1, 0.2))
    confirmed(tmp_path, "two", (0.1, 0.2), **sections)
    found = studies(tmp_path)
    assert found.difference is None
    assert found.sentence.startswith(f"Not compared: {why}")


def test_images_of_the_same_name_that_were_split_otherwise_are_not_compared(tmp_path: Path) -> None:
    pets = {"source": "folder", "labels": 40, "validation": 200}
    confirmed(tmp_path, "one", (0.1, 0.2), data=pets | {"path": "here/pets"})
    made = confirmed(tmp_path, "two", (0.1, 0.2), data=pets | {"path": "there/pets"}, **other(lr=0.03))
    assert studies(tmp_path).difference is not None
    made.trial(0.2, FOUR, role="confirm", pair=(1, 1), split="another")
    assert "other data" in studies(tmp_path).sentence


def test_more_labels_of_the_same_images_can_be_compared(tmp_path: Path) -> None:
    confirmed(tmp_path, "one", (0.1, 0.2))
    confirmed(tmp_path, "two", (0.1, 0.2), data={"labels": 250, "validation": 200})
    assert studies(tmp_path).difference is not None


def test_studies_without_shared_runs_are_not_compared(tmp_path: Path) -> None:
    confirmed(tmp_path, "one", (0.1, 0.2))
    confirmed(tmp_path, "two", (0.1, 0.2), first=7, **other(lr=0.03))
    found = studies(tmp_path)
    assert found.difference is None
    assert "share one run only" in found.sentence  # the search's


def test_a_study_without_a_finished_trial_is_shown_as_it_stands(tmp_path: Path, cbe_: Cbe) -> None:
    confirmed(tmp_path / "results", "one", (0.1, 0.2))
    Made(tmp_path / "results", "two").trial(0.3, FOUR, state="pruned")
    done = cbe_("diff", "one", "two")
    assert done.code == 0
    assert "two: 1 pruned" in done.out
    assert "Not compared: no trial of two has been trained to its end." in done.words


def test_the_same_best_config_is_said_to_be_the_same(tmp_path: Path) -> None:
    confirmed(tmp_path, "one", (0.1, 0.2))
    confirmed(tmp_path, "two", (0.1, 0.2))
    assert studies(tmp_path).settings == ()
    assert "the same best config" in studies(tmp_path).sentence


def test_trials_are_compared_by_config_figures_and_the_last_common_step(tmp_path: Path) -> None:
    made = Made(tmp_path)
    one = made.trial(0.1, FOUR)
    two = made.trial(0.4, FOUR | {"ensemble.heads": 6}, state="pruned", pair=(0, 3))
    found = diff(Store.open(str(tmp_path)), f"made/{one}", f"made/{two}")
    assert isinstance(found, TrialDiff)
    assert [(each.key, each.before, each.after) for each in found.settings] == [
        ("data.label_split", 0, 3),
        ("ensemble.heads", 4, 6),
    ]
    assert found.figures["state"] == ("completed", "pruned")
    assert found.figures["last_test_error"] == pytest.approx((0.11, 0.41))
    curves = made.folder.table("metrics").to_pylist()
    at = {row["trial"]: row["validation_error"] for row in curves if row["step"] == 100}
    assert (found.common_step, found.at_common_step) == (100, (at[one], at[two]))


def test_trials_print_their_figures_and_mark_what_was_not_selected_by(tmp_path: Path, cbe_: Cbe) -> None:
    whole(tmp_path / "results")
    done = cbe_("diff", "made/t0000", "made/t0014")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "last test error*" in done.out
    assert "* not used for selection" in done.out
    assert "NonFiniteLoss" in done.out
    assert "no evaluation at the same step" in done.out


def test_studies_fit_80_columns_and_json_is_for_programs(tmp_path: Path, cbe_: Cbe) -> None:
    whole(tmp_path / "results", "one")
    whole(
        tmp_path / "results", "two", question="[bold]why[/bold] \x1b[31m" + "so long " * 30, **other(lr=0.03)
    )
    done = cbe_("diff", "one", "two")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "[bold]why[/bold]" in done.words and "\x1b" not in done.out
    assert "17 completed · 6 pruned · 1 failed" in done.out
    plain = json.loads(cbe_("diff", "one", "two", "--json").out)
    assert plain["kind"] == "studies"
    assert plain["difference"]["n"] == 3
    assert plain["sides"][0]["best"]["point"] == FOUR
    assert json.loads(cbe_("diff", "one/t0014", "two/t0000", "--json").out)["figures"]["state"] == [
        "failed",
        "completed",
    ]


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ("made", "made/t0000", "made is a study and made/t0000 a trial; wanted two of a kind"),
        ("made/t0000", "made/t00000", "did you mean t0000?"),
        ("made/t0000", "made/zzz", "see them with `cbe show made`"),
        ("made/t0000", "mad/t0000", "did you mean made?"),
        ("made", "mede", "did you mean made?"),
        ("made/t0000", "made/", "none of that name"),
        ("made/t0000", "../x/t0000", "study '..'"),
    ],
)
def test_what_is_not_there_or_not_of_a_kind_is_refused(
    tmp_path: Path, one: str, two: str, message: str
) -> None:
    whole(tmp_path)
    with pytest.raises(InputError) as refused:
        diff(Store.open(str(tmp_path)), one, two)
    assert message in str(refused.value)
