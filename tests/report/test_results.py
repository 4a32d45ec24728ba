"""What `cbe.open_store` gives: tables, answers across studies, and reading while others write."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import boto3
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

import cbe
from cbe.errors import InputError
from cbe.report.intervals import error_interval
from tests.conftest import Cbe
from tests.made import Made, whole
from tests.waiting import until

POINT = {"ensemble.heads": 4, "loss.weights.lb": 1.0}
OTHER = {"ensemble.heads": 6, "loss.weights.lb": 1.0}


def test_tables_come_as_arrow_pandas_or_polars(tmp_path: Path) -> None:
    whole(tmp_path, "first")
    kinds = {"arrow": pa.Table, "pandas": pd.DataFrame, "polars": pl.DataFrame}
    for frames, kind in kinds.items():
        results = cbe.open_store(str(tmp_path), frames)  # type: ignore[arg-type]
        assert isinstance(results.trials(), kind)
        assert isinstance(results.metrics("first/t0000"), kind)
        assert isinstance(results.sql("select 1 as one"), kind)
    with pytest.raises(InputError, match="wanted arrow, pandas, polars"):
        cbe.open_store(str(tmp_path), "excel")  # type: ignore[arg-type]


def test_trials_and_metrics_are_those_asked_for(tmp_path: Path) -> None:
    for name in ("first", "second"):
        whole(tmp_path, name)
    results = cbe.open_store(str(tmp_path))
    assert results.studies() == ["first", "second"]
    assert len(results.trials()) == 48
    failed = results.trials("first", ["trial"], pc.field("state") == "failed")
    assert failed.to_pydict() == {"trial": ["t0014"]}
    curve = results.metrics("second/t0000")
    assert curve["step"].to_pylist() == [50, 100, 150, 200, 250, 300]
    assert set(curve["study"].to_pylist()) == {"second"}
    assert results.metrics("first/t0014").num_rows == 0  # it failed before its first report


def test_metrics_of_a_study_are_the_rows_of_all_its_trials(tmp_path: Path) -> None:
    for name in ("first", "second"):
        whole(tmp_path, name)
    results = cbe.open_store(tmp_path)
    rows = results.metrics("first")
    assert set(rows["study"].to_pylist()) == {"first"} and len(set(rows["trial"].to_pylist())) > 20
    assert rows.equals(results.metrics(study="first"))
    assert results.metrics("t0000", study="first").equals(results.metrics("first/t0000"))
    assert results.metrics().num_rows == 2 * rows.num_rows


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(cbe) == sorted(cbe.__all__)
    assert all(getattr(cbe, name) for name in cbe.__all__)


def test_a_store_that_is_not_there_is_told_with_what_is_wanted(tmp_path: Path) -> None:
    whole(tmp_path, "first")
    (tmp_path / "file").touch()
    wanted = "wanted the folder that holds your studies, or a bucket as s3://bucket/prefix"
    for place, says in {
        tmp_path / "nowhere": f"there is no such folder; {wanted}; check the path, or run a study first",
        tmp_path / "file": f"is a file; {wanted}; check the path",
        tmp_path / "first": f"is the folder of one study; {wanted}; give {tmp_path}",
    }.items():
        with pytest.raises(InputError) as told:
            cbe.open_store(place)
        assert str(told.value) == f"store {place}: {says}"


def test_running_a_study_that_exists_is_refused_and_a_finished_one_is_answered(tmp_path: Path) -> None:
    folder = whole(tmp_path, "first").folder
    config = folder.config()
    assert config is not None
    with pytest.raises(InputError, match="exists already; continue it with resume=True"):
        cbe.run(config, tmp_path)
    with pytest.raises(InputError, match=r"training\.lr: stored is"):
        cbe.run({**config.to_plain(), "training": {"lr": 0.5}}, tmp_path)
    folder.write("status.json", b'{"state": "finished"}')
    done = cbe.run(config.to_plain(), tmp_path, resume=True)
    assert done.stop_reason is None
    assert done.best() == cbe.open_store(tmp_path).best("first")
    assert done.trials().num_rows == 24 and done.metrics().num_rows


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        ("t0000", "wanted STUDY/TRIAL"),
        ("frist", "did you mean first?"),
        ("first/t9999", "none of that name"),
        ("frist/t0000", "did you mean first?"),
    ],
)
def test_a_trial_that_is_not_there_is_told(tmp_path: Path, trial: str, says: str) -> None:
    whole(tmp_path, "first")
    with pytest.raises(InputError) as told:
        cbe.open_store(str(tmp_path)).metrics(trial)
    assert says in str(told.value)


def test_a_condition_limits_what_is_ranked_but_not_what_it_is_compared_with(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for pair, by in (((1, 1), 0.0), ((2, 2), 0.01), ((3, 3), 0.03)):
        made.trial(0.05 + by, POINT, role="confirm", pair=pair)
        made.trial(0.08 + by, OTHER, role="confirm", pair=pair)
        made.trial(0.10 + by / 2, preset="base", role="confirm", pair=pair)
        made.trial(0.02 + by, preset="paper", role="confirm", pair=pair)
    results = cbe.open_store(str(tmp_path))
    free, bound = results.best("made", 9), results.best("made", 9, "ensemble_heads = 6")
    assert [each.preset or each.point["ensemble.heads"] for each in free.ranked] == ["paper", 4, 6, "base"]
    # The paper's config, which has five heads, is better; but it was not asked for.
    assert [each.preset or each.point["ensemble.heads"] for each in bound.ranked] == [6, "paper", "base"]
    assert bound.ranked[0].versus_base == free.ranked[2].versus_base
    assert bound.where == "ensemble_heads = 6"
    assert "where ensemble_heads = 6" in " ".join(bound.to_yaml().split("\n# "))
    for refused in (
        "headz = 6",
        "momentum < 1",
        "1 = 1) or (1 = 1",
        "true; drop view trials",
        "ensemble_heads = 99",
    ):
        if refused == "1 = 1) or (1 = 1":
            assert len(results.best("made", 9, refused).ranked) == 4  # odd, and harmless
        else:
            with pytest.raises(InputError):
                results.best("made", 1, refused)


def test_a_config_of_several_studies_is_one_and_so_is_a_run_of_several(tmp_path: Path) -> None:
    errors = {(0, 0): 0.05, (1, 0): 0.07, (2, 0): 0.06}
    for name, pairs in (("first", [(0, 0), (1, 0)]), ("second", [(1, 0), (2, 0)])):
        made = Made(tmp_path, name, confirm="off")
        for pair in pairs:
            made.trial(errors[pair], POINT, pair=pair)
            made.trial(0.09 + pair[0] / 100, preset="base", pair=pair)
        made.trial(0.061, OTHER)
    (task,) = cbe.open_store(str(tmp_path)).best_of_all(2)
    assert task.title == "digits, 40 labels"
    assert not task.confirmed
    best, other = task.ranked
    values = list(errors.values())
    assert (best.studies, best.n) == (("first", "second"), 3)
    assert best.mean == pytest.approx(0.06)
    assert best.interval == pytest.approx(error_interval(values, images=200))  # not of four runs
    assert (best.name, other.name) == ("first/t0000", "first/t0004")
    wanted = stats.ttest_rel(values, [0.09, 0.10, 0.11])
    assert best.versus_base is not None
    assert best.versus_base.p == pytest.approx(wanted.pvalue)
    assert (other.n, other.interval) == (1, None)


def test_confirmed_configs_decide_and_configs_of_other_images_stand_by_themselves(tmp_path: Path) -> None:
    first = Made(tmp_path, "first")
    first.trial(0.01, OTHER)  # the search flatters
    first.trial(0.05, POINT)
    first.trial(0.06, POINT, role="confirm", pair=(1, 1))
    elsewhere = Made(tmp_path, "elsewhere", data={"labels": 80, "validation": 200})
    elsewhere.trial(0.30, POINT)
    elsewhere.trial(0.25, OTHER, state="pruned")
    elsewhere.trial(0.25, OTHER, state="failed", pair=(2, 0))
    elsewhere.trial(0.20, OTHER, pair=(1, 0))  # lost on most seeds: after what was trained to its end on most
    few, many = cbe.open_store(str(tmp_path)).best_of_all(5)
    assert [few.title, many.title] == ["digits, 40 labels", "digits, 80 labels"]
    assert (few.confirmed, [each.mean for each in few.ranked]) == (True, [0.06])
    assert (many.confirmed, [each.mean for each in many.ranked]) == (False, [0.30, 0.20])


def test_a_config_of_all_studies_has_the_name_of_its_first_trial_after_9999_trials(tmp_path: Path) -> None:
    made = Made(tmp_path, confirm="off")
    made.trial(0.05, POINT, pair=(0, 0), trial="t10000")
    made.trial(0.05, POINT, pair=(1, 0), trial="t9999")
    assert cbe.open_store(str(tmp_path)).best_of_all()[0].ranked[0].name == "t9999"


def test_intervals_across_studies_count_on_as_many_images_as_a_driver_found(tmp_path: Path) -> None:
    made = Made(tmp_path, confirm="off", data={"validation": 0.2})
    for seed in range(3):
        made.trial(0.0, POINT, pair=(seed, 0))
    facts = {"classes": ["cat", "dog"], "validation": 360, "test": None}
    made.folder.write("data.json", json.dumps(facts).encode())
    (task,) = cbe.open_store(str(tmp_path)).best_of_all()
    assert task.ranked[0].interval == pytest.approx(error_interval([0.0] * 3, images=360))


def test_what_was_lost_on_few_seeds_keeps_its_place(tmp_path: Path) -> None:
    made = Made(tmp_path, confirm="off")
    for seed in (0, 1):
        made.trial(0.05, POINT, pair=(seed, 0))
        made.trial(0.40, OTHER, pair=(seed, 0))
    made.trial(0.30, POINT, state="pruned", pair=(2, 0))
    (task,) = cbe.open_store(str(tmp_path)).best_of_all(2)
    assert [each.mean for each in task.ranked] == pytest.approx([0.05, 0.40])


def test_only_runs_beside_a_base_of_the_same_study_are_compared_with_it(tmp_path: Path) -> None:
    with_base, without = Made(tmp_path, "first", confirm="off"), Made(tmp_path, "second", confirm="off")
    for seed, by in ((0, 0.0), (1, 0.02)):
        with_base.trial(0.10 + by, POINT, pair=(seed, 0))
        with_base.trial(0.40 + by / 2, preset="base", pair=(seed, 0))
        without.trial(0.30, POINT, pair=(seed, 0))  # made with other code, say
    placed = cbe.open_store(str(tmp_path)).best_of_all(2)[0].ranked[0]
    assert placed.mean == pytest.approx(0.205)
    assert placed.versus_base is not None
    assert placed.versus_base.mean == pytest.approx(-0.295)


def test_a_confirmation_on_what_was_searched_since_is_none(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for pair in ((0, 0), (1, 1)):  # the study was given seed 1 later
        made.trial(0.05, POINT, pair=pair)
    made.trial(0.05, POINT, role="confirm", pair=(1, 1))
    (task,) = cbe.open_store(str(tmp_path)).best_of_all()
    assert not task.confirmed


def test_studies_that_confirmed_nothing_yet_are_named(cbe_: Cbe, tmp_path: Path) -> None:
    whole(tmp_path / "results", "old")
    Made(tmp_path / "results", "new").trial(0.001, POINT)
    (task,) = cbe.open_store(str(tmp_path / "results")).best_of_all()
    assert (task.confirmed, task.unconfirmed) == (True, ("new",))
    assert "left out, having confirmed nothing yet: new" in cbe_("best").words


def test_listed_labels_are_a_task_of_their_own_and_a_lost_test_error_is_none(tmp_path: Path) -> None:
    Made(tmp_path, "drawn").trial(0.05, POINT, last_test_error=float("nan"))
    Made(tmp_path, "listed", data={"label_indices": list(range(40)), "validation": 200}).trial(0.04, POINT)
    drawn, listed = cbe.open_store(str(tmp_path)).best_of_all()
    assert drawn.title == "digits, 40 labels"
    assert listed.title.startswith("digits, 40 listed (")
    assert drawn.ranked[0].test_error is None


def test_a_condition_chooses_configs_and_never_drops_their_bad_runs(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for seed, error in enumerate((0.05, 0.09, 0.13), start=1):
        made.trial(error, POINT, role="confirm", pair=(seed, seed))
        made.trial(0.2, OTHER, role="confirm", pair=(seed, seed))
    results = cbe.open_store(str(tmp_path))
    ranked = results.best("made", where="last_validation_error < 0.1").ranked
    assert [(each.mean, each.n) for each in ranked] == [(pytest.approx(0.09), 3)]
    for where in ("ensemble_heads = 4", "heads = 4"):  # the short name of a column does, too
        (only,) = results.best("made", where=where).ranked
        assert only.point == POINT
    (task,) = results.best_of_all(9, "last_validation_error < 0.1")
    assert [(each.mean, each.n) for each in task.ranked] == [(pytest.approx(0.09), 3)]


@pytest.mark.parametrize(
    "where", ["last_test_error < 0.1", "trial in (select trial from metrics where test_error < 0.1)"]
)
def test_nothing_is_chosen_by_test_labels(tmp_path: Path, where: str) -> None:
    whole(tmp_path)
    results = cbe.open_store(str(tmp_path))
    with pytest.raises(InputError, match="not chosen by test labels"):
        results.best("made", where=where)
    with pytest.raises(InputError, match="not chosen by test labels"):
        results.best_of_all(where=where)


def test_a_store_with_no_answer_says_why_in_a_line(cbe_: Cbe, tmp_path: Path) -> None:
    told = cbe_("best")
    assert told.code == 2
    assert "no study has a trial that was trained to its end" in told.err
    made = Made(tmp_path / "results")
    told = cbe_("best", "made")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "has no trials yet" in told.err
    for _ in range(2):
        made.trial(
            None, POINT, state="failed", steps=0, error_class="NonFiniteLoss", error_text="loss is nan"
        )
    told = cbe_("best", "made")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "2 failed, the last one with NonFiniteLoss: loss is nan" in told.err
    assert cbe_("best", "--yaml").code == 2


def test_the_command_gives_the_best_of_all(cbe_: Cbe, tmp_path: Path) -> None:
    for name in ("first", "second"):
        whole(tmp_path / "results", name)
    shown = cbe_("best", "-k", "2")
    assert shown.code == 0
    assert "digits, 40 labels" in shown.words
    assert "first/t0006 first, second 3 6.40 −6.60 7.40 (5.89 to 7.11) (−7.35 to −5.85)" in shown.words
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    assert '"title": "digits, 40 labels"' in cbe_("best", "--json").out
    assert "no trial that was trained to its end meets" in cbe_("best", "--where", "ensemble_heads > 99").err


WRITER = """
import sys
from cbe.store.folder import Store
from cbe.store.recorder import Recorder

folder = Store.open(sys.argv[1]).study("made")
recorder = Recorder(folder, flush_s=0.001)
for number in range(200):
    name = f"t{number:04d}"
    for state in ("running", "completed"):
        recorder.trial(name, role="search", state=state, config_id="a", seed=number, label_split=0,
                       objective=0.5, last_validation_error=0.5)
        recorder.metrics(name, {"step": 1 if state == "running" else 2, "validation_error": 0.5})
    recorder.flush()
    if number % 16 == 15:
        for table in ("trials", "metrics"):
            folder.compact(table, grace_s=1.0)
    print(number + 1, flush=True)
recorder.close()
"""


def test_a_reader_of_a_study_in_writing_sees_every_committed_row_once(tmp_path: Path) -> None:
    made = Made(tmp_path)
    results = cbe.open_store(str(tmp_path))
    committed = looks = 0
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:

        def listen() -> None:
            nonlocal committed
            assert writer.stdout is not None
            for line in writer.stdout:
                committed = int(line)

        listener = threading.Thread(target=listen)
        listener.start()
        while listener.is_alive():
            for look in (_by_table, _by_sql, _by_answer):
                before = committed
                trials, completed, reports = look(results)
                assert trials >= before, f"{before} were written, {look.__name__} found {trials}"
                assert completed >= before
                assert reports is None or reports >= 2 * before
            looks += 1
        listener.join()
    assert writer.returncode == 0
    assert looks > 3
    assert committed == 200
    assert _by_table(results) == _by_sql(results) == (200, 200, 400)
    files = tmp_path / "made" / "trials"
    left = len(list(files.iterdir()))
    assert left < 200, left  # of a file for each trial, and the merged ones: some were removed meanwhile

    def is_merged() -> bool:
        made.folder.compact("trials", grace_s=1.0)
        return len(list(files.iterdir())) < 100

    until(is_merged, what="the removal of what was merged last")
    assert _by_table(results) == _by_sql(results) == (200, 200, 400)


def _by_table(results: cbe.report.results.Results) -> tuple[int, int, int | None]:
    trials, metrics = results.trials("made", ["trial", "state"]), results.metrics(study="made")
    assert len(pc.unique(trials["trial"])) == len(trials)
    assert len(metrics.group_by(["trial", "step"]).aggregate([])) == len(metrics)
    return len(trials), trials["state"].to_pylist().count("completed"), len(metrics)


def _by_sql(results: cbe.report.results.Results) -> tuple[int, int, int | None]:
    (row,) = results.sql(
        """select count(*) as n, count(distinct trial) as names,
        count(*) filter (state = 'completed') as done from trials"""
    ).to_pylist()
    assert row["n"] == row["names"]
    (reports,) = results.sql(
        "select count(*) as n, count(distinct (trial, step)) as d from metrics"
    ).to_pylist()
    assert reports["n"] == reports["d"]
    return row["n"], row["done"], reports["n"]


def _by_answer(results: cbe.report.results.Results) -> tuple[int, int, int | None]:
    try:
        (task,) = results.best_of_all()
    except InputError:  # nothing has ended yet
        return 0, 0, None
    return task.ranked[0].n, task.ranked[0].n, None


def test_a_bucket_is_read_like_a_folder(ambient: None, s3_port: int) -> None:
    address = f"127.0.0.1:{s3_port}"
    boto3.client("s3", endpoint_url=f"http://{address}").create_bucket(Bucket="answers")
    place = f"s3://answers/studies?endpoint_override={address}&scheme=http"
    made = whole(place, "first")
    made.folder.compact("trials")
    results = cbe.open_store(place)
    assert results.studies() == ["first"]
    assert results.best("first").ranked[0].mean == pytest.approx(0.064)
    assert results.sql("select count(*) as n from trials").to_pylist() == [{"n": 24}]
    assert results.best_of_all()[0].ranked[0].mean == pytest.approx(0.064)


def test_running_a_study_refuses_unknown_frames_before_anything_is_stored(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"frames 'panda': wanted arrow, pandas, polars"):
        cbe.run({"name": "first"}, tmp_path / "results", frames="panda")  # type: ignore[arg-type]
    assert not (tmp_path / "results").exists()
