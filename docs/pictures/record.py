"""Keeps a finished quickstart study as the record that the pictures show.

    cbe run studies/quickstart.yaml          # during the search: cp -r results/quickstart searching
    python -m docs.pictures.record results/quickstart searching

The record has the tables, the study file and the driver's status; of one moment of the search it has the
trials and the status. It has no checkpoints, no logs and no name of a machine.
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
MOMENT = "searching"  # the trials and the status of a moment of the search
_NODE = "node"
_KEPT = ("trials", "metrics", "confusions", "events")


def keep(study: Path, moment: Path) -> None:
    """Writes one file for each table of the study and for the moment's trials, and the two status files."""
    shutil.rmtree(RECORD, ignore_errors=True)
    RECORD.mkdir(parents=True)
    shutil.copy(study / "study.yaml", RECORD)
    for source, target in ((study, "status.json"), (moment, f"{MOMENT}.json")):
        status = json.loads((source / "status.json").read_text("utf-8"))
        plain = status | {"host": _NODE, "pid": 0, "born": None}
        (RECORD / target).write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    for name in _KEPT:
        (RECORD / name).mkdir()
        _write(_rows(study / name, TABLES[name]), RECORD / name / "record.parquet")
    _write(_rows(moment / "trials", TABLES["trials"]), RECORD / f"{MOMENT}.parquet")


def _write(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="zstd", compression_level=19)


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
