"""Which path of images reaches a service, and what it says of one that it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cbe.errors import ConfigError
from cbe.local import _config
from cbe.service.clients.service import _file
from cbe.service.isolated_tasks import require_seen
from cbe.spec import StudyConfig
from cbe.spec.files import text_to_send
from cbe.store.folder import Store
from cbe.study.lifecycle import amend, begin

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


def test_the_client_sends_a_named_file_as_the_command_does(tmp_path: Path) -> None:
    file = tmp_path / "pets.yaml"
    file.write_text(STUDY.format("pets"))
    for given in (file, str(file)):
        assert _file(given).decode() == text_to_send(StudyConfig, file)
    text = STUDY.format("pets")
    assert _file(text).decode() == text  # of a file that is elsewhere
    file.write_text("name: pets\nmethodd: fixmatch\n")
    assert _file(file) == file.read_bytes()  # the service lists its faults


def test_a_relative_path_in_a_setting_of_resume_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(str(tmp_path / "results"))
    begin(study(str(tmp_path / "pets")), store)
    monkeypatch.chdir(tmp_path)
    assert amend(store.study("pets"), settings=["data.path=moved"]).data.path == str(tmp_path / "moved")


def test_a_relative_path_of_a_study_in_python_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _config(study("pets")).data.path == str(tmp_path / "pets")


def test_a_relative_path_is_submitted_as_the_one_that_the_files_folder_makes_of_it(tmp_path: Path) -> None:
    file = tmp_path / "pets.yaml"
    file.write_text(STUDY.format("pets"))
    assert yaml.safe_load(text_to_send(StudyConfig, file))["data"]["path"] == str(tmp_path / "pets")
    assert text_to_send(StudyConfig, file, same_machine=False) == file.read_text()
    file.write_text(STUDY.format("/srv/pets"))
    assert text_to_send(StudyConfig, file) == file.read_text()
