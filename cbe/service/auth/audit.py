"""What was done by whom: rows of the table `events` under STORE/_service.

A row is in the store when `record` returns. Where it cannot be written `record` raises: what is not on record
either does not happen, or its doer hears that the record of it is missing.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from cbe.store.folder import Store, StudyFolder
from cbe.store.recorder import MOST_FILES
from cbe.store.redact import redacted_json
from cbe.store.schema import EVENTS, fit

SERVICE = "_service"  # no study can have this name

_NEWEST_FIRST = [("time", "descending"), ("id", "descending")]


class Audit:
    """Safe to use from several threads and processes: each row is a file of its own until they are merged."""

    def __init__(self, store: Store) -> None:
        self._folder = StudyFolder(SERVICE, store.location.at(SERVICE))

    def record(self, kind: str, who: str, study: str | None = None, **details: Any) -> None:
        """Puts down that somebody did something, to a study where it was one; raises where that fails."""
        about = {"id": uuid.uuid4().hex, "time": datetime.now(UTC), "kind": kind}
        told = redacted_json({"who": who} | details)
        self._folder.append(
            "events", [about | {"study": fit(EVENTS, "study", study or SERVICE), "details": told}]
        )

    def latest(self, limit: int = 100) -> list[dict[str, Any]]:
        """The latest rows, newest first: time, kind, who, study or None, details."""
        rows = self._folder.table("events", ["id", "time", "kind", "study", "details"])
        latest = rows.take(pc.select_k_unstable(rows, max(0, min(limit, len(rows))), _NEWEST_FIRST))
        return [_plain(row) for row in latest.to_pylist()]

    def tidy(self, most_files: int = MOST_FILES) -> None:
        """Merges the rows' files where they have become many; cheap where they have not."""
        if len(self._folder.list("events")) > most_files:
            self._folder.sweep()
            self._folder.compact("events")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    details = json.loads(row["details"] or "{}")
    return {
        "time": row["time"].isoformat(),
        "kind": row["kind"],
        "who": details.pop("who", None),
        "study": None if row["study"] == SERVICE else row["study"],
        "details": details,
    }
