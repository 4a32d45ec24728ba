"""Which path of images reaches a service, and what it says of one that it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cbe.cli.submit import _sent
from cbe.errors import ConfigError
from cbe.service.work import require_seen
from cbe.spec import StudyConfig

STUDY = "name: pets  # ours\ndata:\n  source: folder\n  path: {}\n"


def study(path: str, source: str = "folder") -> StudyConfig:
    return StudyConfig.model_validate({"name": "pets", "data": {"source": source, "path": path}})


def test_a_path_that_the_service_cannot_see_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    for path in ("pets", str(tmp_path / "pets")):
        require_seen(study(path), tmp_path)
    require_seen(study("s3://bucket/pets", "parquet"), tmp_path)
    require_seen(StudyConfig(name="digits"), tmp_path)
    for path in ("petz", str(tmp_path / "petz"), "x" * 5000):
        with pytest.raises(ConfigError) as caught:
            require_seen(study(path), tmp_path)
        assert str(caught.value) == (
            f"data.path: the service cannot see {path}; "
            "give a folder or file on its machine, or Parquet in a bucket, as s3://bucket/prefix"
        )


def test_a_relative_path_is_submitted_as_the_one_that_the_files_folder_makes_of_it(tmp_path: Path) -> None:
    file = tmp_path / "pets.yaml"
    file.write_text(STUDY.format("pets"))
    assert yaml.safe_load(_sent(file, (), True))["data"]["path"] == str(tmp_path / "pets")
    assert _sent(file, (), False) == file.read_text()
    file.write_text(STUDY.format("/srv/pets"))
    assert _sent(file, (), True) == file.read_text()
