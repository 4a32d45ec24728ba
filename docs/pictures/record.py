"""Keeps a finished quickstart study as the record that the pictures show.

    cbe run studies/quickstart.yaml          # meanwhile: cp results/quickstart/status.json searching.json
    python -m docs.pictures.record results/quickstart searching.json

The record has the tables, the study file and the driver's status, at the end and at one moment of the
search. It has no checkpoints, no logs and no name of a machine.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from cbe.store.schema import TABLES, Table

RECORD = Path(__file__).parents[2] / "studies/records/quickstart"
MOMENT = "searching.json"
_NODE = "node"
_KEPT = ("trials", "metrics", "confusions", "events")


def keep(study: Path, moment: Path) -> None:
    """Writes one file for each table, with every revision of its rows, and the two status files."""
    shutil.rmtree(RECORD, ignore_errors=True)
    RECORD.mkdir(parents=True)
    shutil.copy(study / "study.yaml", RECORD)
    for source, target in ((study / "status.json", "status.json"), (moment, MOMENT)):
        status = json.loads(source.read_text("utf-8")) | {"host": _NODE, "pid": 0, "born": None}
        (RECORD / target).write_text(json.dumps(status, indent=1) + "\n", "utf-8")
    for name in _KEPT:
        (RECORD / name).mkdir()
        rows = _rows(study / name, TABLES[name])
        pq.write_table(rows, RECORD / name / "record.parquet", compression="zstd", compression_level=19)


def _rows(folder: Path, table: Table) -> pa.Table:
    files = sorted(folder.glob("*.parquet"))
    rows = ds.dataset([str(path) for path in files]).to_table()
    key = [*table.key, *(["revision"] if "revision" in rows.column_names else [])]
    order = {tuple(each.values()): at for at, each in enumerate(rows.select(key).to_pylist())}
    rows = rows.take(sorted(order.values()))  # a merged file repeats rows of others
    if "node" in rows.column_names:
        nodes = pa.array([_NODE] * len(rows), pa.string())
        rows = rows.set_column(rows.column_names.index("node"), "node", nodes)
    return rows.replace_schema_metadata({"cbe.schema": f"{table.name}/{table.version}"})


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:]))
