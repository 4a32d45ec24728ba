"""`cbe init`: the study file that it writes for what it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cbe.data import open_dataset
from cbe.data.starter import FolderContents, study_text
from cbe.spec import StudyConfig, read_config
from tests.conftest import Cbe
from tests.contract.small_sources import pixels, png, write_parquet


def _fill(folder: Path, count: int, side: int = 40) -> None:
    folder.mkdir(parents=True)
    for number, image in enumerate(pixels(count, side=side)):
        (folder / f"{number}.png").write_bytes(png(image))


def _labeled_alone(path: Path) -> None:
    _fill(path / "labeled" / "cat", 10)
    _fill(path / "labeled" / "dog", 8)


def _all_three(path: Path) -> None:
    _labeled_alone(path)
    _fill(path / "unlabeled", 30)
    _fill(path / "test" / "cat", 3)


def _plain_classes(path: Path) -> None:
    _fill(path / "cat", 4, side=20)
    _fill(path / "dog", 30, side=20)


def _parquet(path: Path) -> None:
    path.mkdir()
    write_parquet(path / "train.parquet", pixels(20, side=32), np.arange(20) % 2, ["cat", "dog"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            _labeled_alone,
            ["Found 18 labeled images of 2 classes (8 to 10 each), 0 unlabeled", "size: 32"],
        ),
        (_all_three, ["30 unlabeled, 3 test", "source: folder"]),
        (
            _plain_classes,
            [
                "34 labeled images of 2 classes (4 to 30 each)",
                "size: 16",
                "validation: 4\n",
                "of them the error moves in steps of 25 %",
            ],
        ),
        (_parquet, ["20 labeled images of 2 classes (10 each)", "source: parquet"]),
    ],
)
def test_the_file_fits_the_folder_and_its_images_can_be_split(
    cbe_: Cbe, tmp_path: Path, make: Callable[[Path], None], says: list[str]
) -> None:
    make(tmp_path / "My pets")
    done = cbe_("init", "My pets")
    assert (done.code, done.out) == (0, "")
    assert "cbe check study.yaml\n  cbe plan study.yaml\n  cbe run study.yaml" in done.err
    text = (tmp_path / "study.yaml").read_text()
    assert [each for each in says if each not in text] == []
    assert cbe_("check", "study.yaml").code == 0
    study = read_config(StudyConfig, tmp_path / "study.yaml")
    assert study.name == "my-pets"
    dataset = open_dataset(study.data)
    assert len(dataset.labeled) >= 2 and len(dataset.validation) >= 2


@pytest.mark.parametrize("name", ["2024", "no", "null", "2024-01-01"])
def test_a_folder_may_be_called_what_yaml_takes_for_another_type(
    cbe_: Cbe, tmp_path: Path, name: str
) -> None:
    _labeled_alone(tmp_path / name)
    assert cbe_("init", name).code == 0
    assert read_config(StudyConfig, tmp_path / "study.yaml").name == name


def test_one_validation_image_moves_the_error_by_a_hundred_percent() -> None:
    found = FolderContents("folder", {"cat": 2, "dog": 2}, unlabeled=0, test=0, side=32)
    assert found.validation_images == 1
    assert "the error moves in steps of 100 %." in study_text("pets", found, "pets", gpu=False)


def test_a_parquet_row_without_label_is_named(cbe_: Cbe, tmp_path: Path) -> None:
    labels = np.array([0, 1, None, 1, 0])
    write_parquet(tmp_path / "pets/train.parquet", pixels(5), labels, ["cat", "dog"])
    told = cbe_("init", "pets")
    assert told.code == 2 and "train.parquet row 2: label -1 in column label (-1: missing)" in told.err


def test_a_parquet_class_without_images_is_named(cbe_: Cbe, tmp_path: Path) -> None:
    write_parquet(tmp_path / "pets/train.parquet", pixels(4), np.array([0, 1, 1, 0]), ["cat", "dog", "emu"])
    told = cbe_("init", "pets")
    assert told.code == 2 and "class emu has fewer than 2 images" in told.err


def test_without_a_folder_it_is_the_digits(cbe_: Cbe, tmp_path: Path) -> None:
    assert cbe_("init", "--out", "first.yaml").code == 0
    assert "study digits" in cbe_("check", "first.yaml").out


def test_a_file_is_overwritten_only_by_force(cbe_: Cbe, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("mine")
    refused = cbe_("init")
    assert refused.code == 2 and "exists already" in refused.err and "--force" in refused.err
    assert (tmp_path / "study.yaml").read_text() == "mine"
    assert cbe_("init", "--force").code == 0
    assert "digits" in (tmp_path / "study.yaml").read_text()


def test_a_folder_elsewhere_is_written_in_full(cbe_: Cbe, tmp_path: Path) -> None:
    _labeled_alone(tmp_path / "pets")
    (tmp_path / "studies").mkdir()
    assert cbe_("init", "pets", "--out", "studies/a.yaml").code == 0
    file = tmp_path / "studies" / "a.yaml"
    assert read_config(StudyConfig, file).data.path == str(tmp_path / "pets")
    assert "relative to this file" not in file.read_text()


def _empty(path: Path) -> None:
    path.mkdir()


def _loose(path: Path) -> None:
    _fill(path, 3)


def _train_and_val(path: Path) -> None:
    _fill(path / "train" / "cat", 3)
    _fill(path / "val" / "cat", 3)


@pytest.mark.parametrize("make", [lambda path: None, _empty, _loose, _train_and_val])
def test_a_folder_that_cannot_be_used_is_told_with_the_expected_layout(
    cbe_: Cbe, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "pets")
    told = cbe_("init", "pets")
    assert told.code == 2
    assert (
        "pets" in told.err and "FOLDER/labeled/CLASS/*.png" in told.err and "FOLDER/CLASS/*.png" in told.err
    )
    assert not (tmp_path / "study.yaml").exists()


def test_classes_that_are_too_small_are_told(cbe_: Cbe, tmp_path: Path) -> None:
    _fill(tmp_path / "pets" / "labeled" / "cat", 5)
    _fill(tmp_path / "pets" / "labeled" / "dog", 1)
    told = cbe_("init", "pets")
    assert told.code == 2 and "class dog has fewer than 2 images" in told.err
