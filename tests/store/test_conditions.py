"""What of a table is read for a question about one trial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from cbe.service.isolated_tasks import metrics
from cbe.service.trials import trial
from cbe.store.folder import STUDY_FILE, Store
from cbe.store.sql import answer, select

TRIALS, REPORTS = 400, 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A study as its driver leaves it: written bit by bit, all trials at once, then merged."""
    found = Store.open(str(tmp_path_factory.mktemp("results")))
    folder, draw = found.study("first"), np.random.default_rng(0)
    names = [f"t{number:04d}" for number in range(TRIALS)]
    folder.write(STUDY_FILE, b"")
    folder.append("trials", [{"trial": name, "state": "completed", "params": "{}"} for name in names])
    for start in range(0, REPORTS, 25):
        steps = range(start, start + 25)
        folder.append(
            "metrics",
            [
                {"trial": name, "step": step, "loss": draw.random(), "validation_error": draw.random()}
                for step in steps
                for name in names
            ],
        )
    folder.append(
        "events",
        [{"id": name, "time": 0, "kind": "started", "trial": name, "details": "{}"} for name in names],
    )
    folder.finish()
    return found


def bytes_read(act: Callable[[], object]) -> int:
    """That this process reads from files meanwhile."""
    act()  # loads code, which is read from files, too

    def so_far() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("rchar")).split()[1])

    before = so_far()
    act()
    return so_far() - before


@pytest.mark.parametrize("of", ["select *", "curve", "page", "route"])
def test_a_question_about_one_trial_reads_only_the_row_groups_that_may_have_it(store: Store, of: str) -> None:
    folder = store.study("first")
    (name,) = folder.list("metrics")
    size = Path(folder.path(f"metrics/{name}")).stat().st_size
    ask: dict[str, Callable[[], object]] = {
        "select *": lambda: select(store, "select * from metrics where trial = 't0123'"),
        "curve": lambda: folder.table("metrics", where=pc.field("trial") == "t0123"),
        "page": lambda: trial(store, "first", "t0123"),
        "route": lambda: metrics(store.uri, "first", "t0123", 1000, 0),
    }
    assert bytes_read(lambda: folder.table("metrics")) > 0.9 * size
    assert bytes_read(ask[of]) < 0.2 * size


QUERIES = (
    "select * from metrics where trial = 't0123'",
    "select count(*) from metrics where trial in ('t0001', 't0002') or step = 3",
    "select count(*) from metrics where trial in ('t0001', 't0002', 'it''s') and step > 3",
    "select count(*), (select count(*) from metrics) from metrics where trial = 't0001'",
    "select count(*) from metrics m left join trials t on m.trial = t.trial and t.trial = 't0001'",
    "select m.step from metrics m join trials t using (trial) where t.trial = 't0001' order by 1",
    "select count(*) from metrics where not trial = 't0001'",
    "select count(*) from metrics where trial = 't0001' and study = 'second'",
    "select count(*) from metrics where trial = '(trial = ''t0001'') AND (trial = ''t0002'')'",
    "select count(*) from metrics where study = '' or trial = 't0001'",
    "select count(*) from events where kind = 'started' and trial = 't0007'",
    "select * from (select trial, count(*) as n from metrics group by 1) where trial = 't0003'",
    "select count(*) from metrics where trial = 't0001' and trial = 't0002'",
    "select count(*) from metrics where trial = 't0001' union all select count(*) from trials",
)


@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_is_that_over_all_rows(store: Store, query: str) -> None:
    every = answer(query, lambda table, columns, where: store.table(table, columns))
    assert select(store, query).equals(every)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("select step from metrics where trial = 't0123'", {"t0123"}),
        ("select step from metrics where trial in ('t0001', 'it''s') and loss > 0", {"t0001", "it's"}),
        ("select m.step from metrics m join trials t using (trial) where t.trial = 't0001'", {"t0001"}),
        ("select step from metrics where trial = 't0001' or loss > 0", None),
        ("select step, (select count(*) from metrics) from metrics where trial = 't0001'", None),
    ],
)
def test_only_rows_that_can_matter_are_fetched(store: Store, query: str, wanted: set[str] | None) -> None:
    fetched: set[str] = set()

    def fetch(table: str, columns: object, where: pc.Expression | None) -> object:
        fetched.update(store.table(table, ["trial"], where)["trial"].to_pylist())
        return store.table(table, None, where)

    answer(query, fetch)
    assert fetched <= wanted if wanted else len(fetched) == TRIALS


def test_a_row_is_judged_by_its_latest_revision_whatever_is_asked(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    store.study("a").write(STUDY_FILE, b"")
    for state in ("running", "completed"):
        store.study("a").append("trials", [{"trial": "t0", "state": state}, {"trial": "t1", "state": state}])
    query = "select count(*) as n from trials where trial = 't0' and state = '{}'"
    counts = {state: select(store, query.format(state))["n"][0].as_py() for state in ("running", "completed")}
    assert counts == {"running": 0, "completed": 1}
