"""A study's file in the store: how it begins, what of it may change, and what may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbe.errors import ConfigError, InputError
from cbe.spec import StudyConfig
from cbe.store.folder import Store, StudyFolder
from cbe.store.states import STATUS, status
from cbe.study.control import Claim
from cbe.study.lifecycle import amend, begin, load
from tests.heads_study import config, finished_study, write


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """A study that has finished, in the store `results`."""
    return finished_study(tmp_path / "results")


def test_a_study_begins_with_its_file_in_the_store_and_reads_back_as_it_was(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    asked = StudyConfig.model_validate({"name": "all-defaults", "question": "Größer?"})
    begin(asked, store)
    found, folder = load(store, "all-defaults")
    assert found == asked and folder.exists()
    assert "Größer?" in (tmp_path / "all-defaults/study.yaml").read_text("utf-8")


def test_a_name_that_is_taken_by_the_same_study_is_told_with_what_to_do(
    folder: StudyFolder, tmp_path: Path
) -> None:
    store = Store.open(str(tmp_path / "results"))
    with pytest.raises(InputError, match="exists already; it is finished: see `cbe best heads`"):
        begin(config(storage="elsewhere"), store)
    folder.delete(STATUS)
    with pytest.raises(InputError, match="exists already; continue it with `cbe resume heads`"):
        begin(config(storage="elsewhere"), store)


def test_a_name_that_is_taken_by_another_study_is_refused_with_every_difference(
    folder: StudyFolder, tmp_path: Path
) -> None:
    store = Store.open(str(tmp_path / "results"))
    before = folder.read("study.yaml")
    with pytest.raises(ConfigError) as refused:
        begin(config(budget={"trials": 9}, question=""), store)
    assert "`cbe resume heads --file FILE`, or choose another name" in str(refused.value)
    assert "budget.trials: stored is 4, now it is 9" in str(refused.value)
    assert "question: stored is 'Do [bold]more[/bold] heads help?', now it is ''" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        begin(config(data={"labels": 80, "validation": 200}), store)
    assert "data.labels: stored is 40, now it is 80" in str(refused.value)
    assert "resume" not in str(refused.value)  # it would be refused there too
    assert folder.read("study.yaml") == before


def test_an_unknown_study_is_met_with_the_nearest_name(folder: StudyFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no study haeds; did you mean heads"):
        load(Store.open(str(tmp_path / "results")), "haeds")
    with pytest.raises(InputError, match="holds no study heads; start one with `cbe run FILE`"):
        load(Store.open(str(tmp_path / "nowhere")), "heads")


def test_a_study_goes_on_unchanged_where_nothing_is_said(folder: StudyFolder) -> None:
    assert amend(folder) == config()
    assert status(folder).state == "finished"
    assert not (Path(folder.uri) / "study.1.yaml").exists()


def test_what_a_study_searches_and_spends_may_change_and_older_files_are_kept(
    folder: StudyFolder, tmp_path: Path
) -> None:
    original = folder.read("study.yaml")
    file = write(tmp_path / "edited.yaml", search={"ensemble.heads": [2, 4]}, seeds=[0, 1], sampler="random")
    changed = amend(folder, file=file, settings=["budget.trials=9", "resources.cpus=2"])
    assert (changed.budget.trials, changed.seeds, changed.sampler.name) == (9, (0, 1), "random")
    assert load(Store.open(str(tmp_path / "results")), "heads")[0] == changed
    assert folder.read("study.1.yaml") == original
    assert amend(folder, settings=["budget.trials=12"]).trials == 12
    assert folder.read("study.1.yaml") == original and folder.read("study.2.yaml") is not None


def test_a_finished_study_that_was_changed_has_more_to_do(folder: StudyFolder) -> None:
    amend(folder, settings=["budget.trials=9"])
    assert status(folder).state == "stopped"


def test_what_its_trials_compute_may_not_change_and_all_of_it_is_named(
    folder: StudyFolder, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "edited.yaml",
        data={"labels": 80, "validation": 200},
        objective="validation_loss",
        method="uda",
        budget={"trials": 9},
    )
    with pytest.raises(ConfigError) as refused:
        amend(folder, file=file)
    assert [fault.where for fault in refused.value.faults] == ["data.labels", "method.name", "objective"]
    assert "the study was started with 40, now it is 80" in str(refused.value)
    assert "begin a study of another name" in str(refused.value)
    assert load(Store.open(str(tmp_path / "results")), "heads")[0] == config()


def test_where_images_lie_and_trials_run_may_change(folder: StudyFolder) -> None:
    assert amend(folder, settings=["data.root=/elsewhere", "training.device=cpu"]).data.root == "/elsewhere"


def test_the_file_of_another_study_is_refused(folder: StudyFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"other.yaml: is of study other, not heads"):
        amend(folder, file=write(tmp_path / "other.yaml", name="other"))


def test_the_file_of_a_running_study_is_not_changed(folder: StudyFolder) -> None:
    before = folder.read("study.yaml")
    with Claim(folder), pytest.raises(InputError, match="is running, and its file is not changed meanwhile"):
        amend(folder, settings=["budget.trials=9"])
    assert folder.read("study.yaml") == before
