"""The audit: who did what is on record when the call returns, without secrets, and stays so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbe.errors import RunError
from cbe.service.auth.audit import Audit
from cbe.store.folder import Store
from cbe.store.redact import redact
from tests.conftest import small_files


def files(store: Store) -> list[str]:
    return [entry.name for entry in store.location.at("_service/events").entries()]


def test_what_was_done_is_told_newest_first(store: Store) -> None:
    audit = Audit(store)
    assert audit.latest() == []
    before = datetime.now(UTC)
    audit.record("submitted", "ada", "pets", priority=3)
    audit.record("token_made", "cli", name="bob")
    audit.record("stopped", "bob", "pets")
    third, second, first = Audit(store).latest()
    assert first.pop("time") == min(each["time"] for each in audit.latest())
    assert first == {"kind": "submitted", "who": "ada", "study": "pets", "details": {"priority": 3}}
    assert (second["kind"], second["who"], second["study"]) == ("token_made", "cli", None)
    assert third["kind"] == "stopped" and third["details"] == {}
    assert before <= datetime.fromisoformat(second["time"]) <= datetime.fromisoformat(third["time"])


def test_only_as_many_are_told_as_are_wanted(local: Store) -> None:
    audit = Audit(local)
    for number in range(5):
        audit.record("submitted", "ada", f"study-{number}")
    assert [each["study"] for each in audit.latest(2)] == ["study-4", "study-3"]
    assert len(audit.latest(99)) == 5 and audit.latest(0) == audit.latest(-1) == []


def test_the_audit_is_no_study_and_no_query_reads_it(store: Store) -> None:
    Audit(store).record("submitted", "ada", "pets")
    assert store.names() == [] and store.table("events").num_rows == 0


def test_secrets_stay_off_the_record(local: Store) -> None:
    token = "cbe_0123abcd_" + "Ab3-_" * 8 + "xyz"
    audit = Audit(local)
    audit.record("refused", "ada", presented=f"got {token}!", password="hush", url="https://me:hush@host/x")
    (row,) = audit.latest()
    assert row["details"] == {"presented": "got ***!", "password": "***", "url": "https://***@host/x"}
    (name,) = files(local)
    content = local.location.at(f"_service/events/{name}").read()
    assert content is not None and b"hush" not in content and token[13:].encode() not in content
    assert redact("cbe_studies cbe_0123abcd_short") == "cbe_studies cbe_0123abcd_short"


def test_texts_that_no_file_holds_are_put_down_as_far_as_can_be(local: Store) -> None:
    Audit(local).record("refused", "a\udcffda", "pe\udcffts", path=Path("/x"), value=float("nan"))
    (row,) = Audit(local).latest()
    assert row["study"] == "pe?ts" and row["details"] == {"path": "/x", "value": "nan"}


def test_what_cannot_be_put_down_is_told(local: Store) -> None:
    audit = Audit(local)
    with small_files(100), pytest.raises(RunError, match=r"_service/events.* could not be written"):
        audit.record("submitted", "ada", "pets")
    assert audit.latest() == [] and files(local) == []


def test_rows_put_down_at_once_are_all_there(local: Store) -> None:
    def record(number: int) -> None:
        Audit(local).record("submitted", "ada", f"study-{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(40)))
    assert {each["study"] for each in Audit(local).latest()} == {f"study-{number}" for number in range(40)}


def test_tidying_merges_many_files_and_changes_no_row(store: Store) -> None:
    audit = Audit(store)
    for number in range(5):
        audit.record("submitted", "ada", f"study-{number}")
    told, before = audit.latest(), files(store)
    audit.tidy()
    assert files(store) == before  # too few to bother
    audit.tidy(most_files=4)
    assert len(set(files(store)) - set(before)) == 1
    store.location.at(f"_service/events/{before[0]}").delete()
    assert audit.latest() == told
    audit.record("stopped", "ada", "study-0")
    assert audit.latest()[1:] == told and audit.latest()[0]["kind"] == "stopped"
