"""The folder of one training run: its config, its split, its metrics as Parquet and its last checkpoint.

    config.yaml  split.json  metrics/00000400.parquet …  checkpoint.pt  result.json

Every file is written aside and renamed, so that a reader, and the next start after a crash, sees whole files
only. A report's file is named by its step: repeating a step after a crash replaces it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cbe.errors import DataError, InputError, RunError
from cbe.files import replace_file
from cbe.spec.changes import require_same
from cbe.spec.metrics import REPORTED

SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64()) for name in REPORTED),
        pa.field("thresholds", pa.list_(pa.float64())),  # per class, mean over heads
        pa.field("confusion", pa.list_(pa.list_(pa.float64()))),  # validation: rows true, columns predicted
        pa.field("pseudo_confusion", pa.list_(pa.list_(pa.float64()))),  # the same of the pseudo-labels used
    ],
    metadata={"cbe.schema": "metrics/1"},
)


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.pt"

    def create(self, config: dict[str, Any], split: dict[str, Any]) -> None:
        """Claims the folder for a new run; refuses one that holds another."""
        if any(self.path.glob("config.yaml")) or any(self.path.glob("metrics/*.parquet")):
            raise InputError(
                f"{self.path}: holds a run already; go on with --resume, or choose another --out"
            )
        try:
            (self.path / "metrics").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); choose another --out"
            ) from None
        self._write("split.json", json.dumps(split).encode())
        self._write("config.yaml", yaml.safe_dump(config, sort_keys=False).encode())

    def config_path(self) -> Path:
        path = self.path / "config.yaml"
        if not path.exists():
            raise InputError(f"{self.path}: no run to resume here; start it without --resume")
        return path

    def check(self, config: dict[str, Any], split: str) -> None:
        """Refuses to go on with another config or another split than the run was started with."""
        require_same(yaml.safe_load(self.config_path().read_text("utf-8")), config)
        try:
            stored = json.loads((self.path / "split.json").read_text("utf-8"))["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path / 'split.json'}: cannot be read ({error}); start a new run with another --out"
            ) from None
        if stored != split:
            raise DataError(
                f"{self.path}: was started on label split {stored}, the data now give {split}; "
                "bring the old data back, or start a new run with another --out"
            )

    def add(self, metrics: dict[str, Any]) -> None:
        """Keeps one report."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([metrics], schema=SCHEMA), sink)
        self._write(f"metrics/{metrics['step']:08d}.parquet", sink.getvalue().to_pybytes())

    def metrics(self) -> pa.Table:
        """All reports in the order of steps."""
        parts = (self.path / "metrics").glob("[0-9]*.parquet")
        return pa.concat_tables([SCHEMA.empty_table(), *map(pq.read_table, parts)]).sort_by("step")

    def finish(self, result: dict[str, Any]) -> None:
        self._write("result.json", json.dumps(result, indent=2).encode())

    def _write(self, name: str, content: bytes) -> None:
        path = self.path / name
        try:
            replace_file(path, lambda file: file.write(content))
        except OSError as error:
            raise RunError(
                f"{path}: could not be written ({error.strerror}); free some space and resume"
            ) from None
