"""SQL over a store: what it answers, what it fetches for that, and all that it refuses."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from cbe.cli import console
from cbe.errors import InputError
from cbe.store.folder import Store
from cbe.store.schema import TABLES
from cbe.store.sql import answer, columns_read, select
from tests.conftest import Cbe
from tests.made import whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    place = tmp_path_factory.mktemp("results")
    for name in ("first", "second"):
        whole(place, name)
    return Store.open(str(place))


def test_a_query_sees_all_studies_or_those_that_are_named(store: Store) -> None:
    counted = "select study, count(*) as n from trials group by study order by study"
    every = select(store, counted).to_pylist()
    assert every == [{"study": "first", "n": 24}, {"study": "second", "n": 24}]
    assert select(store, counted, ["second"]).to_pylist() == every[1:]


def test_tables_join_and_values_come_in_their_types(store: Store) -> None:
    found = select(
        store,
        """select t.trial, t.started, max(m.step) as last, t."values"[1] as first,
        t.params->>'$."ensemble.heads"' as heads from Trials t join metrics m using (study, trial)
        where t.state = 'completed' and t.preset is null and t.study = 'first' and t.role = 'search'
        group by all order by trial""",
    )
    assert found.schema.field("started").type == pa.timestamp("us", "UTC")
    assert set(found["last"].to_pylist()) == {300}
    assert found["first"][0].as_py() == pytest.approx(0.09)
    assert found["heads"][0].as_py() == "2"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("select trial from trials where objective < 0.1", {"trial", "objective"}),
        ("select trial from (select trial, config from trials)", {"trial"}),
        ("select trials.step from trials", {"step"}),
        ("from trials", set(TABLES["trials"].schema.names)),
        ("select t from trials t", set(TABLES["trials"].schema.names)),
        ("select columns('last_.*') from trials", {"last_validation_error", "last_test_error"}),
        ("with x as (select seed, node from trials) select max(seed) from x where node like 'a%'", None),
    ],
)
def test_only_columns_that_the_plan_reads_are_fetched(
    store: Store, query: str, wanted: set[str] | None
) -> None:
    fetched: list[tuple[str, set[str]]] = []

    def fetch(table: str, columns: Sequence[str], where: object) -> pa.Table:
        fetched.append((table, set(columns)))
        return store.table(table, columns)

    answer(query, fetch)
    assert fetched == [("trials", {"seed", "node"} if wanted is None else wanted)]


def test_a_column_that_is_named_but_not_needed_does_no_harm(store: Store) -> None:
    inner = 'select trial, config, "values", started from trials'
    query = f"select count(*) as n from ({inner}) where trial = 't0000'"
    assert select(store, query).to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    "query",
    [
        "create table mine as select 1",
        "create view trials as select 1",
        "insert into trials values (1)",
        "update trials set state = 'completed'",
        "delete from trials",
        "drop view trials",
        "alter table trials rename to others",
        "copy trials to '{path}'",
        "copy (select 1) to '{path}'",
        "export database '{path}'",
        "attach '{path}' as other",
        "install httpfs",
        "load httpfs",
        "set threads = 1",
        "reset threads",
        "pragma database_list",
        "call pragma_version()",
        "use memory",
        "begin",
        "checkpoint",
        "prepare later as select 1",
        "explain analyze select 1",
        "select 1; drop view trials",
        "select 1; select 2",
        "select * from '{path}'",
        "select * from read_csv('{path}')",
        "select * from read_text('{path}')",
        "select * from read_blob('{path}')",
        "select * from read_parquet('{path}')",
        "select * from parquet_metadata('{path}')",
        "select * from glob('{folder}/*')",
        "select * from sniff_csv('{path}')",
        "select * from read_json('https://example.org/x')",
        "select * from query('copy trials to ''{path}''')",
        "select getenv('HOME')",
        "from fetched",
        "",
        "  -- nothing",
    ],
)
def test_what_writes_attaches_copies_or_reads_other_files_is_refused(
    store: Store, tmp_path: Path, query: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("word\nswordfish\n")
    before = sorted(tmp_path.iterdir())
    fetched = pa.table({"word": ["swordfish"]})  # a variable that must not be a table
    assert len(fetched) == 1
    with pytest.raises(InputError) as told:
        select(store, query.format(path=secret, folder=tmp_path))
    assert "\n" not in str(told.value)
    assert "swordfish" not in str(told.value)
    assert sorted(tmp_path.iterdir()) == before
    assert secret.read_text() == "word\nswordfish\n"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("selec trial from trials", 'syntax error at or near "selec"'),
        ("select objectiv from trials", '"objective"'),
        ("select * from trails", 'Did you mean "trials"?'),
        ("select trial from trials where state = 'x", "unterminated"),
        ("select sum(state) from trials", "sum"),
    ],
)
def test_bad_sql_gets_one_line_that_says_what_is_wrong(store: Store, query: str, says: str) -> None:
    with pytest.raises(InputError) as told:
        select(store, query)
    assert str(told.value).startswith("SQL: ")
    assert "\n" not in str(told.value)
    assert says in str(told.value)
    assert "trials, metrics, confusions, events" in str(told.value)


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) from range(1000000000000) where range % 7 = 3",
        # folded into a constant while the query is planned
        "select list_sum(list_transform(range(60000), lambda x: list_sum(range(x)))) from trials",
    ],
)
def test_a_query_that_takes_too_long_is_ended(store: Store, query: str) -> None:
    with pytest.raises(InputError, match=r"took longer than 0\.2 s"):
        select(store, query, timeout_s=0.2)


def test_columns_of_one_name_and_odd_types_come_as_every_format_can_hold_them(store: Store) -> None:
    found = select(
        store,
        """select t.trial, m.trial, sum(m.step), t.updated - t.started as took, 1.5 as half,
        interval 2 month as months from trials t join metrics m using (study, trial)
        where study = 'first' and trial = 't0000' group by all""",
    )
    (row,) = found.to_pylist()
    assert row == {
        "trial": "t0000",
        "trial_1": "t0000",
        "sum(m.step)": 1050,
        "took": timedelta(seconds=20),
        "half": 1.5,
        "months": "2 months 0 days",
    }
    joined = select(store, "select * from trials join metrics using (study, trial) limit 3")
    assert len(set(joined.column_names)) == len(joined.column_names)
    assert joined.to_pandas()["wall_s_1"].notna().all()


def test_what_a_query_reads_is_known_before_it_is_asked() -> None:
    inner = "select trial from metrics where test_error < 0.1"
    assert columns_read(f"select 1 from trials where trial in ({inner})") == {"trial", "test_error"}


def test_tables_can_be_listed_and_settings_say_nothing_of_the_machine(store: Store) -> None:
    assert select(store, "show tables")["name"].to_pylist() == sorted(TABLES)
    told = select(store, "select value from duckdb_settings()")["value"].to_pylist()
    assert str(Path.home()) not in " ".join(map(str, told))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40) | st.sampled_from(["select ", "from trials", "'", '"', ";", "--"]))
def test_whatever_is_asked_is_answered_or_refused(store: Store, query: str) -> None:
    try:
        select(store, query, ["first"], timeout_s=10)
    except InputError as error:
        assert str(error)


def test_the_command_prints_a_table_csv_and_json(cbe_: Cbe, tmp_path: Path) -> None:
    whole(tmp_path / "results", "first")
    query = 'select trial, objective, "values", started from trials order by role desc, trial limit 2'
    shown = cbe_("query", "first", query)
    assert shown.code == 0
    assert "t0000 0.08 [0.08]" in shown.words
    plain = list(csv.DictReader(io.StringIO(cbe_("query", "first", query, "--format", "csv").out)))
    assert plain[0] == {
        "trial": "t0000",
        "objective": "0.08",
        "values": "[0.08]",
        "started": "2026-05-04 12:00:00+00:00",
    }
    listed = json.loads(cbe_("query", query, "--format", "json").out)
    assert [row["objective"] for row in listed] == [0.08, 0.12]


def test_an_answer_is_whole_however_wide_it_is(cbe_: Cbe, tmp_path: Path) -> None:
    whole(tmp_path / "results", "first")
    lines = cbe_("query", "select * from trials where trial = 't0014'").out.splitlines()
    assert len(lines) == 3  # to a file: one line a row, nothing cut
    for word in ("t0014", "NonFiniteLoss", "loss is not finite at step 12", "wrn-10-1"):
        assert word in lines[-1]
    odd = cbe_("query", "select 1 as \"[/x]\", 'a[bold]b' as text, 'nan'::double as n")
    assert "[/x] text n" in odd.words and "1 a[bold]b nan" in odd.words
    assert json.loads(cbe_("query", "select 'nan'::double as n", "--format", "json").out) == [{"n": None}]


def test_an_answer_wider_than_the_screen_is_shown_value_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cbe_: Cbe
) -> None:
    whole(tmp_path / "results", "first")
    screen = Console(width=80, force_terminal=True, no_color=True, highlight=False)
    monkeypatch.setattr(console, "out", screen)
    shown = cbe_("query", "select * from trials where trial = 't0014'").words
    assert "row 1" in shown and "error_class NonFiniteLoss" in shown and "trial t0014" in shown


def test_a_star_on_a_terminal_shows_no_json_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cbe_: Cbe
) -> None:
    whole(tmp_path / "results", "first")
    monkeypatch.setattr(console, "out", Console(width=80, force_terminal=True, no_color=True))
    shown = cbe_("query", "select * from trials order by role desc, trial")
    assert "row 10" in shown.words and "row 11" not in shown.words
    assert "{" not in shown.out and "ensemble_heads" in shown.out
    assert "Not shown because they are empty or JSON: params, config" in " ".join(shown.err.split())


def test_a_column_that_is_empty_in_the_shown_rows_alone_is_not_called_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cbe_: Cbe
) -> None:
    whole(tmp_path / "results", "first")
    monkeypatch.setattr(console, "out", Console(width=80, force_terminal=True, no_color=True))
    shown = cbe_("query", "select * from trials order by error_class nulls first")
    assert "row 10" in shown.words and "NonFiniteLoss" not in shown.out
    assert "error_class" in shown.out and "error_class" not in shown.err
    assert "14 more rows; select fewer columns" in " ".join(shown.err.split())
    assert "{" in cbe_("query", "select trial, config from trials where preset is null").out
    listed = json.loads(cbe_("query", "select * from trials", "--format", "json").out)
    assert set(listed[0]) == set(TABLES["trials"].schema.names)


@pytest.mark.parametrize(
    ("query", "full"),
    [
        ("select lr from trials", "select training_lr from trials"),
        (
            "select heads, count(*) as n from trials group by heads order by heads",
            "select ensemble_heads, count(*) as n from trials group by 1 order by 1",
        ),
        (
            "select t.\"heads\" from trials t where t.HEADS > 2 and 'é heads' != 'heads'",
            "select ensemble_heads from trials where ensemble_heads > 2",
        ),
        (
            "select trial from trials where loss.weights.lb > 0 or weights_lb < 0",
            "select trial from trials where loss_weights_lb > 0 or loss_weights_lb < 0",
        ),
        (
            "select method, model from trials where ensemble = 'channel'",
            "select method_name, model_name from trials where ensemble_kind = 'channel'",
        ),
        (
            "select m.lr, t.heads from trials t join metrics m using (study, trial) order by all",
            "select m.lr, t.ensemble_heads from trials t join metrics m using (study, trial) order by all",
        ),
    ],
)
def test_short_names_of_columns_mean_the_full_ones(store: Store, query: str, full: str) -> None:
    found = select(store, query)
    assert found.num_rows and found.equals(select(store, full))


def test_names_that_the_query_defines_come_before_short_names(store: Store) -> None:
    query = "with x as (select objective as lr from trials) select max(lr) as most from x"
    assert select(store, query).equals(select(store, "select max(objective) as most from trials"))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            "select momentum from trials",
            "momentum is ambiguous; did you mean ensemble_momentum, method_momentum or training_momentum?",
        ),
        ("select learning_rate from trials", "no column learning_rate; did you mean training_lr?"),
        (
            "select validation_error from trials",
            "did you mean last_validation_error, median_validation_error or best_validation_error?",
        ),
        ("select t.heds from trials t", 'Table "t" does not have a column named "heds"'),
        ("select lr from events", 'Referenced column "lr" not found'),
        (f"select {'+'.join(['lr'] * 60)} from trials", "more than 50 short names"),
        (
            "select x.ensemble_heads from (select trial from trials) x",
            'Table "x" does not have a column named "ensemble_heads"',
        ),
        (
            "select Ensemble_Heads from (select trial from trials) x",
            'Referenced column "Ensemble_Heads" not found',
        ),
    ],
)
def test_a_short_name_that_is_ambiguous_or_unknown_is_refused_with_what_may_be_meant(
    store: Store, query: str, says: str
) -> None:
    with pytest.raises(InputError) as told:
        select(store, query)
    assert says in str(told.value) and "\n" not in str(told.value)


def test_no_test_error_is_suggested(store: Store) -> None:
    with pytest.raises(InputError) as told:
        select(store, "select error from trials")
    assert "last_validation_error" in str(told.value) and "test_error" not in str(told.value)


def test_a_short_name_reads_the_column_it_stands_for() -> None:
    assert columns_read("select trial from trials where heads = 2") == {"trial", "ensemble_heads"}


def test_parquet_goes_to_a_file(tmp_path: Path) -> None:
    whole(tmp_path / "results", "first")
    query = "select trial, objective from trials where role = 'search' order by trial"
    with (tmp_path / "answer.parquet").open("wb") as file:
        command = [Path(sys.executable).with_name("cbe"), "query", query, "--format", "parquet"]
        subprocess.run(command, stdout=file, check=True, cwd=tmp_path)
    assert pq.read_table(tmp_path / "answer.parquet")["trial"][0].as_py() == "t0000"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("firts", "select 1"), "study firts: there is none of that name; did you mean first?"),
        (("../x", "select 1"), "'../x'"),
        (("first", "select", "1"), "wanted a study's name, if any, and one SELECT"),
        (("first",), "first: is no SQL"),
        (("select 1", "first"), "wanted the study's name first"),
        (("select 1", "--store", "nowhere"), "there is no such folder"),
        (("select 1", "--store", "results/first"), "wanted the one above it; give --store results"),
        (("first/t0000", "select 1"), "is a trial; wanted a study alone"),
        (("select 'infinity'::timestamp as t",), "cannot hold this answer"),
        (("drop view trials",), "got DROP"),
    ],
)
def test_the_command_refuses_in_one_line(
    cbe_: Cbe, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    whole(tmp_path / "results", "first")
    told = cbe_("query", *arguments)
    assert (told.code, told.out) == (2, "")
    assert says in told.err
    assert told.err.count("\n") == 1
