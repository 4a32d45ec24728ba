"""What a config finds in its data, told before anything is trained."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from cbe.cli import check
from cbe.data import facts_of, look, open_dataset
from cbe.data.facts import _slow_means
from cbe.errors import ConfigError
from cbe.spec import TrainConfig
from tests.conftest import small
from tests.contract.small_sources import pixels, write_folder, write_parquet

CLASSES = ["cat", "dog", "eel"]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    write_folder(tmp_path / "pets/labeled", pixels(30), CLASSES)
    write_folder(tmp_path / "pets/unlabeled", pixels(7, seed=1))
    return tmp_path / "pets"


def config(folder: Path, source: str = "folder", **data: object) -> TrainConfig:
    given = {
        "source": source,
        "path": str(folder),
        "root": str(folder.parent),
        "labels": 12,
        "validation": 12,
    }
    return TrainConfig.model_validate({"data": {**given, **data}, "training": {"steps": 300}})


def file(folder: Path, path: str, labels: int = 9) -> Path:
    plain = {"name": "mine", "data": {"source": "folder", "path": path, "labels": labels, "validation": 12}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(plain))
    return folder / "mine.yaml"


def test_a_folder_and_a_parquet_file_tell_undecoded_what_they_tell_decoded(pets: Path) -> None:
    labels = np.arange(30) % 3
    write_parquet(pets.parent / "set/train.parquet", pixels(30), labels, CLASSES)
    write_parquet(pets.parent / "set/test.parquet", pixels(6), labels[:6], CLASSES)
    for asked in (config(pets), config(pets.parent / "set", "parquet", labels="all")):
        decoded = facts_of(open_dataset(asked.data), asked).to_plain()
        assert decoded["shape"] == (3, 12, 12)
        found = look(asked)
        assert found is not None
        before = found.to_plain()
        assert {**before, "shape": decoded["shape"], "sentence": decoded["sentence"]} == decoded


def test_nothing_is_decoded_to_tell_what_is_there(pets: Path) -> None:
    for path in pets.rglob("*.png"):
        path.write_bytes(b"no image")
    found = look(config(pets))
    assert found is not None
    assert found.sentence == (
        "pets: 12 labeled, 19 unlabeled, 12 validation, no test set; 3 classes (cat, dog, eel); "
        f"split {found.split}"
    )


def test_what_a_user_should_know_is_told_once_each(pets: Path) -> None:
    found = look(config(pets, labels=4))
    assert found is not None
    assert found.lines()[1:] == [
        "Classes have 1 to 2 labels each.",
        "1 label a class is few: results will vary a lot between label splits. Raise data.labels if you can.",
        "The validation error moves in steps of 8.33 % (12 validation images). "
        "Raise data.validation if you can.",
        "300 steps are few for training.ema 0.999 and model.bn_momentum 0.001: the evaluated model will lag "
        "behind the trained one. Raise training.steps, or set them to 0.98 and 0.05.",
    ]


@pytest.mark.parametrize("steps", [3, 14, 15, 60, 299, 300, 5000])
def test_what_is_advised_for_few_steps_is_enough_for_them(steps: int) -> None:
    few = small(training={"steps": steps, "ema": 0.9999})
    (said,) = _slow_means(few)
    advised = re.search(r"set them to ([\d.]+) and ([\d.]+)\.$", said)
    assert (advised is None) == (steps < 15) and "Raise training.steps" in said
    if advised:
        ema, momentum = map(float, advised.groups())
        assert not [
            *_slow_means(small(training={"steps": steps, "ema": ema}, model={"bn_momentum": momentum}))
        ]


def test_where_there_is_enough_of_all_nothing_more_is_said() -> None:
    found = look(TrainConfig())
    assert found is not None and found.warnings == ()


def test_a_set_that_is_not_downloaded_yet_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"name": "a", "data": {"source": "cifar10", "root": str(tmp_path / "none")}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(plain))
    check.command([tmp_path / "a.yaml"])
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == [f"  cifar10: not in {tmp_path / 'none'} yet; training downloads it first."]
    assert not (tmp_path / "none").exists()


def test_a_bucket_out_of_reach_is_told_and_is_no_fault_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "s3://bucket/images?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    plain = {"name": "a", "data": {"source": "parquet", "path": address}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(plain))
    check.command([tmp_path / "a.yaml"])
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 2 and told[1].startswith("  Cannot read the data from this machine: data.path: s3")


@pytest.mark.parametrize(
    ("source", "path", "says"),
    [
        ("parquet", "ftp://host/images", "wanted "),
        ("parquet", "s3://key:secret@bucket/images", "credentials do not belong in it"),
        ("folder", "s3://bucket/images", "source folder reads a folder on this machine; for a bucket, "),
    ],
)
def test_an_address_that_no_machine_can_read_is_refused(
    tmp_path: Path, source: str, path: str, says: str
) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"name": "a", "data": {"source": source, "path": path}}))
    with pytest.raises(ConfigError) as caught:
        check.command([tmp_path / "a.yaml"])
    assert str(caught.value).startswith(f"{tmp_path / 'a.yaml'}:") and says in str(caught.value)


def test_checking_tells_a_program_what_the_data_are(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check.command([file(pets.parent, "pets")], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    told = {key: found["data"][key] for key in ("classes", "labeled", "validation", "fewest", "most")}
    assert told == {"classes": CLASSES, "labeled": 9, "validation": 12, "fewest": 3, "most": 3}
    assert found["note"] is None and len(found["data"]["warnings"]) == 2


def test_checking_refuses_a_path_that_does_not_exist_with_its_line(pets: Path) -> None:
    path = file(pets.parent, "petz")
    with pytest.raises(ConfigError) as caught:
        check.command([path])
    assert str(caught.value).startswith(f"{path}:3 data.path: {pets.parent / 'petz'} does not exist; wanted ")


def test_checking_refuses_a_split_that_cannot_be_drawn(pets: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml:2 data\.labels: 2 labels do not reach all 3 classes"):
        check.command([file(pets.parent, "pets", labels=2)])
