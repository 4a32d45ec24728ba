"""Addresses in buckets, and files on clouds that do not write them whole."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyarrow import fs

from cbe.clouds import CLOUDS
from cbe.errors import InputError, RunError
from cbe.store.folder import Store, StudyFolder
from cbe.store.location import Location

AZURE = "abfs://box@account.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("s3://bucket/a b/c?region=eu-west-1&scheme=http", "bucket/a b/c"),
        ("gs://bucket/a%20b", "bucket/a b"),
        ("gs://anonymous@bucket?endpoint_override=127.0.0.1:1&retry_limit_seconds=2", "bucket"),
        (f"{AZURE}/a b/c", "box/a b/c"),
        (f"{AZURE}?blob_storage_authority=127.0.0.1:1&enable_tls=false", "box"),
    ],
)
def test_an_address_is_kept_and_goes_where_it_says(uri: str, root: str) -> None:
    store = Store.open(uri)
    assert store.location.root == root and not store.location.local
    below = pickle.loads(pickle.dumps(store.study("first"))).path("trials/1.parquet")
    plain, _, query = uri.partition("?")
    assert unquote(below) == f"{unquote(plain)}/first/trials/1.parquet" + (f"?{query}" if query else "")
    assert Location.open(below).root == f"{root}/first/trials/1.parquet"


@pytest.mark.parametrize("uri", ["gs://bucket/a%20b/c?scheme=http", f"{AZURE}/a%20b/c?enable_tls=false"])
def test_ray_finds_the_same_place(uri: str) -> None:
    # Ray Tune resolves its storage_path just so.
    place = Store.open(uri).study("first").location.at(".ray")
    assert fs.FileSystem.from_uri(place.uri)[1] == place.root


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("gs://user:very-secret@bucket/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://very-secret@bucket/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://bucket/x?access_token=very-secret", "access_token in the query"),
        ("gs://bucket/x?json_credentials=very-secret", "json_credentials in the query"),
        ("abfs://box:very-secret@account.dfs.core.windows.net/x", "AZURE_CLIENT_SECRET"),
        ("abfs://very-secret@elsewhere/x", "AZURE_CLIENT_SECRET"),
        (f"{AZURE}/x?sig=very-secret&sv=2024", "sig, sv in the query"),
        (f"{AZURE}/x?account_key=very-secret", "account_key in the query"),
        (f"{AZURE}/x?client_id=b&client_secret=very-secret", "client_id, client_secret in the query"),
        ("abfs://box/x", "wanted abfs://container@account.dfs.core.windows.net/prefix"),
        ("az://box/x", "wanted a local path, s3://bucket/prefix"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(uri: str, wanted: str) -> None:
    with pytest.raises(InputError) as caught:
        Store.open(uri)
    assert wanted in str(caught.value) and "very-secret" not in str(caught.value)


def test_every_setting_that_an_address_may_have_is_one_of_pyarrow() -> None:
    values = {"enable_tls": "true", "retry_limit_seconds": "3", "scheme": "http"}
    for cloud in CLOUDS.values():
        query = "&".join(f"{name}={values.get(name, '127.0.0.1:1')}" for name in cloud.settings)
        assert Store.open(f"{cloud.form}?{query}").uri == f"{cloud.form}?{query}"


def test_a_cloud_that_fails_is_named_with_what_to_check() -> None:
    uri = "gs://anonymous@bucket/x?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=1"
    with pytest.raises(
        RunError, match=r"gs://anonymous@bucket/x/first/stop.*GOOGLE_APPLICATION_CRED"
    ) as caught:
        Store.open(uri).study("first").write("stop", b"")
    assert "\n" not in str(caught.value)


def test_a_folder_on_gcs_is_named_once_with_or_without_an_object_of_its_own(gs: str) -> None:
    store = Store.open(gs.format("/listed"))
    place = store.location
    for name in ("plain", "made"):
        store.study(name).write("study.yaml", b"")
        store.study(name).write("trials/1.parquet", b"")
    place.filesystem.create_dir(f"{place.root}/made/trials")
    place.filesystem.create_dir(f"{place.root}/empty")
    store.study("plain").write(".ray/state", b"")
    assert [entry.name for entry in place.entries()] == ["empty", "made", "plain"]
    assert place.entries(folders=False) == [] and store.names() == ["made", "plain"]
    assert [entry.name for entry in place.at("plain").entries()] == ["study.yaml", "trials"]
    assert [entry.name for entry in place.at("plain").entries(hidden=True)] == [".ray"]
    for name in ("plain", "made"):
        store.study(name).remove()
    assert [entry.name for entry in place.entries()] == ["_index", "empty"]


def like_azure(folder: Path) -> StudyFolder:
    """A study where files are empty while they are written, as on Azure."""
    (folder / "box/store/first").mkdir(parents=True)
    filesystem = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    return Store(Location(filesystem, "box/store", AZURE)).study("first")


def test_where_files_show_while_they_are_written_that_happens_aside(tmp_path: Path) -> None:
    folder = like_azure(tmp_path)
    folder.write("status.json", b"old")
    folder.write("status.json", b"new")
    assert folder.read("status.json") == b"new" and folder.uri == f"{AZURE}/store/first"
    (tmp_path / "box/store/first/stop").mkdir()
    with pytest.raises(RunError, match=rf"{AZURE}/store/first/stop: could not be written.*AZURE_"):
        folder.write("stop", b"")
    assert sorted(path.name for path in (tmp_path / "box/store/first").iterdir()) == ["status.json", "stop"]


def test_what_a_killed_writer_has_left_aside_is_swept(tmp_path: Path) -> None:
    folder = like_azure(tmp_path)
    for name, age_s in ((".status.json.12", 100), (".status.json.34", 0), (".ray", 100)):
        path = tmp_path / "box/store/first" / name
        path.touch()
        os.utime(path, (time.time() - age_s,) * 2)
    folder.sweep(older_s=50)
    assert [entry.name for entry in folder.location.entries(hidden=True)] == [".ray", ".status.json.34"]
