"""Studies and trials by their names; what is not there is told with what was probably meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.store.folder import DATA_FILE, Store, StudyFolder
from cbe.store.rows import Row
from cbe.store.states import current_trials

_LISTED = 8


def known(store: Store, name: str) -> StudyFolder:
    """A study's folder; refuses a name that the store does not have."""
    folder = store.study(name)
    if not folder.exists():
        raise InputError(_unknown(folder))
    return folder


def read_study(folder: StudyFolder) -> StudyConfig:
    """The study as its folder has it; refuses a name that the store does not have."""
    study = folder.config()
    if study is None:
        raise InputError(_unknown(folder))
    return study


def data_facts(folder: StudyFolder) -> dict[str, Any] | None:
    """What the study's driver found in the data, as `cbe.data.Facts` tells it; None before that."""
    content = folder.read(DATA_FILE)
    try:
        plain = json.loads(content) if content else None
    except ValueError:  # no driver writes such a thing
        return None
    return plain if isinstance(plain, dict) else None


def trial_row(folder: StudyFolder, trial: str, columns: Sequence[str] | None = None) -> Row:
    """A trial's row; refuses a name that the study does not have."""
    found: list[Row] = current_trials(folder, columns, pc.field("trial") == trial).to_pylist()
    if found:
        return found[0]
    names = sorted(folder.table("trials", ["trial"])["trial"].to_pylist())
    near = difflib.get_close_matches(trial, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"see them with `cbe show {folder.name}`"
    raise InputError(f"trial {trial!r}: study {folder.name} has none of that name; {hint}")


def store_of(folder: StudyFolder) -> Store:
    """The store that a study is in."""
    location = folder.location
    return Store(replace(location, root=location.root.rpartition("/")[0]))


def _unknown(folder: StudyFolder) -> str:
    names = store_of(folder).names()
    near = difflib.get_close_matches(folder.name, names, 1)
    hint = "the store has none; check --store, or start one with `cbe run FILE`"
    if names:
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names[:_LISTED])}{more}"
    return f"study {folder.name}: there is none of that name; {hint}"
