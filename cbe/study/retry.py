"""Failed trials that are to be tried again: the wish is kept beside the study until a driver starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cbe.errors import InputError
from cbe.store.folder import StudyFolder
from cbe.study.lifecycle import reopen

if TYPE_CHECKING:
    from cbe.store.recorder import Recorder

ALL = "failed"
RETRY_FILE = "retry.json"


def require_failed(folder: StudyFolder, wanted: Sequence[str]) -> list[str]:
    """The failed trials that are meant, `failed` being all of them; InputError where one has not failed."""
    rows = folder.table("trials", ["trial", "state"]).to_pylist()
    failed = sorted(row["trial"] for row in rows if row["state"] == "failed")
    wrong = [name for name in wanted if name not in (ALL, *failed)]
    if wrong or not failed:
        known = f"failed are {', '.join(failed)}" if failed else "no trial has failed; leave it out"
        name = wrong[0] if wrong else ALL
        raise InputError(f"--retry {name}: {folder.name} has no failed trial of that name; {known}")
    return failed if ALL in wanted else sorted(set(wanted))


def ask_to_retry(folder: StudyFolder, wanted: Sequence[str]) -> None:
    """Lets the next driver try failed trials again; to be asked while none runs."""
    if wanted:
        names = require_failed(folder, wanted)
        with folder.changing():
            folder.write(RETRY_FILE, json.dumps(names).encode())
            reopen(folder, "failed trials are tried again")


def retry(recorder: Recorder) -> None:
    """Makes the trials that are to be tried again unfinished ones, which go on from their checkpoints."""
    content = recorder.folder.read(RETRY_FILE)
    if content is None:
        return
    for name in json.loads(content):
        row = recorder.rows.get(name)
        if row and row["state"] == "failed":
            recorder.trial(name, state="interrupted", error_class=None, error_text=None)
            recorder.event("retried", name, error_class=row["error_class"])
    recorder.flush()
    if recorder.problem is None and recorder.superseded is None:  # else it is asked for again
        recorder.folder.delete(RETRY_FILE)
