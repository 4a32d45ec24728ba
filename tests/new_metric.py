"""What knows of a metric: run by `test_metrics.py` on a copy of the package that has one more."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cbe.cli.trials import show
from cbe.data import open_dataset
from cbe.report.best import best
from cbe.report.page.render import render
from cbe.service.clients.local import LocalStudies
from cbe.service.routes.pages import _asset
from cbe.store.folder import Store
from cbe.store.schema import METRICS
from cbe.study.trial.log import logged, read_log
from cbe.training.loop import train
from cbe.words import figure
from docs.reference.store import meaning
from tests.conftest import small
from tests.made import status, whole


def knowledge(metric: str, store: Path) -> dict[str, Any]:
    config, reports = small(), []
    train(config, open_dataset(config.data), lambda metrics, snapshot: reports.append(metrics))
    made = whole(store, objective=metric)
    status(made, "finished")
    objective, answer = made.study.objectives[0], best(made.folder)
    with logged(made.folder, "t0000") as log:
        log.evaluated(reports[-1], config.training.steps)
    show(LocalStudies(Store.open(str(store))), "made/t0000", as_json=False, as_yaml=False)
    return {
        "reported": reports[-1][metric],
        "column": metric in METRICS.schema.names,
        "meaning": meaning("metrics", metric),
        "figure": figure(metric, 0.5),
        "direction": objective.direction,
        "margin": made.study.margin,
        "headline": answer.headline,
        "log": read_log(made.folder, "t0000"),
        "report": render(made.folder),
        "page": _asset("metrics.js")[0].decode(),
    }


if __name__ == "__main__":
    found = knowledge(sys.argv[1], Path(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(found))
