"""One trial in full: what was recorded of it, how it went, and how to run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import yaml

from cbe.errors import InputError
from cbe.spec.identity import column_types
from cbe.store.folder import Store
from cbe.store.rows import Row
from cbe.store.schema import METRICS, TRIALS
from cbe.study.overview import plain_row, row_from_plain
from cbe.study.trial.log import read_log
from cbe.words import finite

_IN_CONFIG = {*column_types(), "config", "revision"}
_COLUMNS = tuple(name for name in TRIALS.schema.names if name not in _IN_CONFIG)
_FIGURES = tuple(name for name in METRICS.schema.names if name not in ("study", "trial", "revision", "epoch"))
_LINES = 500  # of a log


@dataclass(frozen=True)
class Trial:
    row: Row
    config: Mapping[str, Any] | None  # resolved; None where it could not be built
    curve: tuple[Row, ...]  # its reports, in the order of steps, in plain values
    events: tuple[Row, ...]  # what happened to it, the same
    log: str = ""  # the last lines that its process has said

    @property
    def name(self) -> str:
        """STUDY/TRIAL."""
        return f"{self.row['study']}/{self.row['trial']}"

    def to_yaml(self) -> str:
        """A file for `cbe train`: the trial's config on its own seed and label split."""
        if self.config is None:
            raise InputError(f"trial {self.name}: has no config, for it could not be built; choose another")
        plain = yaml.safe_dump(dict(self.config), sort_keys=False, allow_unicode=True)
        return f"# Trial {self.name}\n{plain}"

    @property
    def rerun(self) -> str | None:
        """The command that trains it again."""
        file = f"{self.row['trial']}.yaml"
        return f"cbe show {self.name} --yaml > {file} && cbe train {file}" if self.config else None

    def to_plain(self) -> dict[str, Any]:
        return {
            **finite(plain_row(self.row)),
            "config": self.config,
            "yaml": self.to_yaml() if self.config else None,
            "rerun": self.rerun,
            "curve": list(self.curve),
            "events": list(self.events),
            "log": self.log,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Trial:
        """A trial out of its `to_plain`."""
        row = row_from_plain({name: plain.get(name) for name in _COLUMNS})
        curve, events = tuple(plain["curve"]), tuple(plain["events"])
        return cls(row, plain["config"], curve, events, plain.get("log") or "")


def trial(store: Store, study: str, name: str) -> Trial:
    """A trial of a study; refuses names that the store does not have."""
    from cbe.report.lookup import known, trial_row  # it takes a while to load

    folder = known(store, study)
    row = dict(trial_row(folder, name, [*_COLUMNS, "config"]))
    config = row.pop("config")
    of_it = pc.field("trial") == name
    curve = folder.table("metrics", _FIGURES, of_it).sort_by("step").to_pylist()
    events = folder.table("events", ["time", "kind", "details"], of_it).sort_by("time").to_pylist()
    return Trial(
        row={key: finite(value) for key, value in row.items()},
        config=json.loads(config) if config else None,
        curve=tuple(_plain(each) for each in curve),
        events=tuple(_plain(each) | {"details": json.loads(each["details"] or "{}")} for each in events),
        log="".join(read_log(folder, name).splitlines(keepends=True)[-_LINES:]),
    )


def _plain(row: Row) -> dict[str, Any]:
    time = row["time"]
    return finite({**row, "time": time.isoformat() if time else None})  # type: ignore[no-any-return]
