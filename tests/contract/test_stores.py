"""Every place a store can be at keeps one contract: a local folder, a bucket on S3 and one on GCS."""

from __future__ import annotations

import pickle
from pathlib import Path

import boto3
import pyarrow.compute as pc
import pytest
from moto.server import ThreadedMotoServer

from cbe.errors import RunError
from cbe.store.folder import Store, StudyFolder
from cbe.store.recorder import Recorder
from cbe.store.schema import TABLES
from cbe.store.sql import select

BUCKET = "cbe-stores"


def make_bucket(port: int) -> str:
    """An S3 address with a bucket that was made for it."""
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
    client.create_bucket(Bucket=BUCKET)
    client.close()
    return f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


@pytest.fixture(params=["local", "s3", "gs"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, ambient: None) -> str:
    if request.param == "local":
        return str(tmp_path / "results")
    if request.param == "gs":
        address: str = request.getfixturevalue("gs")
        return address.format(f"/{tmp_path.name}/results")
    return f"s3://{BUCKET}/{tmp_path.name}/results" + make_bucket(request.getfixturevalue("s3_port"))


@pytest.fixture
def folder(uri: str) -> StudyFolder:
    return Store.open(uri).study("first")


def column(folder: StudyFolder, table: str, *names: str, where: pc.Expression | None = None) -> list[object]:
    rows = folder.table(table, names, where).to_pylist()
    return sorted(tuple(row.values()) if len(names) > 1 else row[names[0]] for row in rows)


def test_a_store_that_is_not_there_is_empty_and_opening_makes_nothing(uri: str, tmp_path: Path) -> None:
    store = Store.open(uri)
    folder = store.study("first")
    assert store.names() == [] and not folder.exists()
    assert folder.read("status.json") is None and folder.list("checkpoints") == []
    for name, table in TABLES.items():
        found = folder.table(name)
        assert found.num_rows == 0 and found.schema.equals(table.schema)
    assert list(tmp_path.iterdir()) == []


def test_the_studies_of_a_store_are_the_folders_with_a_study_file(uri: str) -> None:
    store = Store.open(uri)
    for name in ("b-2", "a.1"):
        store.study(name).write("study.yaml", b"name: x")
    store.study("c").write("status.json", b"{}")
    assert store.names() == ["a.1", "b-2"]
    assert store.study("a.1").exists() and not store.study("c").exists()


def test_files_are_written_replaced_listed_and_deleted(folder: StudyFolder) -> None:
    folder.write("status.json", b"old and longer")
    folder.write("status.json", b"new")
    assert folder.read("status.json") == b"new"
    for step in (100, 200):
        folder.write(f"checkpoints/t1/{step:08d}.pt", b"weights")
    assert folder.list("checkpoints") == ["t1"]
    assert folder.list("checkpoints/t1") == ["00000100.pt", "00000200.pt"]
    folder.delete("checkpoints/t1/00000100.pt")
    folder.delete("checkpoints/t1/00000100.pt")
    assert folder.list("checkpoints/t1") == ["00000200.pt"]
    folder.delete("checkpoints/t1")
    assert folder.read("checkpoints/t1/00000200.pt") is None and folder.read("status.json") == b"new"


def test_a_study_is_removed_with_all_that_it_holds(uri: str) -> None:
    store = Store.open(uri)
    for name in ("first", "other"):
        store.study(name).write("study.yaml", b"")
        store.study(name).write("checkpoints/t1/00000100.pt", b"weights")
        store.study(name).append("trials", [{"trial": "a"}])
    store.study("first").remove()
    assert store.names() == ["other"] and store.study("first").list("checkpoints") == []
    assert store.study("first").table("trials").num_rows == 0 and column(
        store.study("other"), "trials", "trial"
    )


def test_an_address_in_a_folder_leads_there_again(folder: StudyFolder) -> None:
    folder.write("study.yaml", b"name: first")
    assert folder.path("study.yaml").partition("?")[0].endswith("results/first/study.yaml")
    above = folder.uri.replace("/first", "")
    assert Store.open(above).study("first").read("study.yaml") == b"name: first"


def test_a_folder_can_be_sent_to_another_process(folder: StudyFolder) -> None:
    folder.append("trials", [{"trial": "a"}])
    assert column(pickle.loads(pickle.dumps(folder)), "trials", "trial") == ["a"]


def test_of_rows_with_the_same_key_the_latest_counts(folder: StudyFolder) -> None:
    folder.append("trials", [{"trial": "a", "state": "running"}, {"trial": "b", "state": "running"}])
    folder.append("trials", [{"trial": "a", "state": "completed"}])
    folder.append("trials", [{"trial": "b", "state": "outdated", "revision": 1}])
    assert column(folder, "trials", "trial", "state") == [("a", "completed"), ("b", "running")]
    folder.append("metrics", [{"trial": "a", "step": step, "loss": 1.0} for step in (1, 2)])
    folder.append("metrics", [{"trial": "a", "step": 2, "loss": 0.5}])
    assert column(folder, "metrics", "step", "loss") == [(1, 1.0), (2, 0.5)]
    kinds = [{"trial": "a", "step": 1, "kind": kind, "matrix": [[1, 0], [0, 2]]} for kind in ("a", "b", "a")]
    folder.append("confusions", kinds)
    assert folder.table("confusions")["matrix"].to_pylist() == [[[1, 0], [0, 2]]] * 2
    folder.append("confusions", [{"trial": "a", "step": 1, "kind": "a", "matrix": [[3.5]]}])
    for _ in range(2):
        matrices = {row["kind"]: row["matrix"] for row in folder.table("confusions").to_pylist()}
        assert matrices == {"a": [[3.5]], "b": [[1, 0], [0, 2]]}
        assert folder.compact("confusions") == 1


def test_a_condition_sees_the_latest_revision_only(folder: StudyFolder) -> None:
    folder.append("trials", [{"trial": name, "state": "running", "seed": 1} for name in "abc"])
    folder.append("trials", [{"trial": "a", "state": "completed", "seed": 1}])
    running = pc.field("state") == "running"
    assert column(folder, "trials", "trial", where=running) == ["b", "c"]
    assert column(folder, "trials", "state", where=pc.field("trial").isin(["a", "c"])) == [
        "completed",
        "running",
    ]
    assert column(folder, "trials", "trial", where=running & (pc.field("trial") > "b")) == ["c"]


def test_sql_is_answered_over_all_studies(uri: str) -> None:
    store = Store.open(uri)
    for name in ("a", "b"):
        store.study(name).write("study.yaml", b"")
        store.study(name).append("trials", [{"trial": "t0", "seed": 1}, {"trial": "t1", "seed": 2}])
    found = select(store, "select study, sum(seed) as seeds from trials group by 1 order by 1")
    assert found.to_pylist() == [{"study": "a", "seeds": 3}, {"study": "b", "seeds": 3}]


def test_merging_changes_no_row_and_replaced_files_go_only_later(folder: StudyFolder) -> None:
    for number in range(5):
        folder.append("metrics", [{"trial": "a", "step": step, "loss": number} for step in (number, 9)])
    before, rows = folder.list("metrics"), column(folder, "metrics", "step", "loss")
    assert folder.compact("metrics") == 1
    merged = set(folder.list("metrics")) - set(before)
    assert len(merged) == 1 and set(before) < set(folder.list("metrics"))
    assert column(folder, "metrics", "step", "loss") == rows
    assert folder.compact("metrics") == 1
    assert len(folder.list("metrics")) == 6
    assert folder.compact("metrics", grace_s=0) == 1
    assert set(folder.list("metrics")) == merged
    assert column(folder, "metrics", "step", "loss") == rows


def test_a_recorder_takes_up_what_another_has_written(folder: StudyFolder) -> None:
    first = Recorder(folder)
    first.trial("a", state="running", seed=3, values=[0.5, 10], params='{"x": 1}')
    first.metrics("a", {"step": 10, "loss": 1.0, "confusion": [[1.0]], "pseudo_confusion": None})
    first.event("started", "a", workers=2)
    first.close()
    second = Recorder(folder).load()
    assert second.recorded_step("a") == 10 and second.rows["a"]["seed"] == 3
    second.metrics("a", {"step": 10, "loss": 7.0})
    second.metrics("a", {"step": 20, "loss": 0.5})
    second.trial("a", state="completed")
    second.close()
    assert column(folder, "trials", "trial", "state", "seed") == [("a", "completed", 3)]
    assert folder.table("trials")["values"].to_pylist() == [[0.5, 10.0]]
    assert column(folder, "metrics", "step", "loss") == [(10, 1.0), (20, 0.5)]
    assert column(folder, "confusions", "step", "kind") == [(10, "validation")]
    assert column(folder, "events", "kind", "trial", "details") == [("started", "a", '{"workers": 2}')]


def test_s3_takes_its_endpoint_from_the_environment(
    ambient: None, s3_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bucket(s3_port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_port}")
    folder = Store.open(f"s3://{BUCKET}/plain prefix").study("first")
    folder.write("study.yaml", b"")
    assert Store.open(folder.uri.removesuffix("/first")).names() == ["first"]


def test_a_bucket_that_is_not_there_is_named_with_what_to_check(ambient: None, s3_port: int) -> None:
    folder = Store.open("s3://no-such-bucket/x" + make_bucket(s3_port)).study("first")
    with pytest.raises(RunError, match=r"s3://no-such-bucket/x/first/study.yaml.*could not be written.*AWS_"):
        folder.write("study.yaml", b"")


def test_rows_wait_in_memory_while_s3_is_down(ambient: None, tmp_path: Path) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    uri = f"s3://{BUCKET}/{tmp_path.name}" + make_bucket(port)
    folder = Store.open(uri).study("first")
    recorder = Recorder(folder, flush_s=3600)
    recorder.trial("a", state="running")
    recorder.flush()
    assert recorder.problem is None
    server.stop()
    recorder.metrics("a", {"step": 1, "loss": 1.0})
    recorder.trial("a", state="completed")
    with pytest.raises(RunError, match=r"3 rows could not be written: .*could not be written.*AWS_ENDPOINT"):
        recorder.close()
    assert recorder.problem is not None and "could not be written" in recorder.problem
    again = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    again.start()
    try:
        recorder.close()
        assert recorder.problem is None
        assert column(folder, "trials", "trial", "state") == [("a", "completed")]
        assert column(folder, "metrics", "step", "loss") == [(1, 1.0)]
    finally:
        again.stop()
