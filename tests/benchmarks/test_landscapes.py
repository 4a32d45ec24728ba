"""The recorded landscapes, and studies that are replayed on them."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.landscape import FOLDER, plans
from benchmarks.replay import BASE, PAPER, Draw, Landscape, Replay
from benchmarks.search import CONTENDERS, PARTS, _study, _summary, chosen_parts, is_wrong
from cbe.store.rows import pair_of


@pytest.mark.parametrize("name", ["digits", "fashion"])
def test_a_landscape_has_all_runs_of_its_plan_and_is_small(name: str) -> None:
    rows, plan = pq.read_table(FOLDER / f"{name}.parquet").to_pylist(), plans()[name]
    runs = Counter((row["config"], row["pair"]) for row in rows)
    assert set(runs.values()) == {1} and len(runs) == (plan.configs + 2) * plan.pairs
    planned = dict(enumerate(plan.points()))
    assert all((row["source"], json.loads(row["point"])) == planned[row["config"]] for row in rows)
    by_prior = {row["config"] for row in rows if row["source"] == "prior"}
    assert len(by_prior) == -(-plan.configs // 3)
    assert (FOLDER / f"{name}.parquet").stat().st_size < 5_000_000


def test_a_recorded_config_stands_for_itself() -> None:
    land = Landscape("digits")
    numbers = [n for n in range(len(land.configs)) if n != BASE]
    assert [land.nearest(land.points[n]) for n in numbers] == numbers


def test_the_halves_share_only_the_fixed_configs_and_no_pair_of_a_search() -> None:
    development, final = Landscape("digits", 0), Landscape("digits", 1)
    assert set(development.configs) & set(final.configs) == {PAPER, BASE}
    assert not set(development.search_pairs) & set(final.search_pairs)


def test_fresh_pairs_scatter_around_the_true_error_as_recorded_ones_do() -> None:
    land = Landscape("digits")
    draw = Draw(land, 0)
    ends = np.array(
        [[draw.curve(config, n, fresh=True)[-1]["validation_error"] for n in range(900)] for config in (2, 3)]
    )
    assert ends.mean(axis=1) == pytest.approx(land.truth[2:4], abs=0.003)
    assert ends.std(axis=1) == pytest.approx(land.error[2:4, :, -1].std(axis=1, ddof=1), rel=0.2)


def test_a_replayed_study_races_confirms_and_repeats() -> None:
    land = Landscape("digits", 0)
    study = _study(land, 3, budget={"trials": 24}, confirm={"configs": 1, "runs": 4})
    replays = [Replay(study, land, 3) for _ in range(2)]
    spent = [list(replay.run())[-1] for replay in replays]
    assert spent[0] == spent[1]
    rows = list(replays[0].ledger.rows.values())
    search = [row for row in rows if row["role"] == "search"]
    assert {row["state"] for row in rows} <= {"completed", "pruned"}
    assert len(search) <= 24 and {row["state"] for row in search} == {"completed", "pruned"}
    assert {row["preset"] for row in rows if row["role"] == "confirm"} >= {"paper", "base"}
    first = study.pairs[0]
    assert all(row["state"] == "completed" for row in search if pair_of(row) != first)


def test_courses_are_summed_up_by_their_first_step_at_a_target() -> None:
    courses = [[(10, 0.5), (20, 0.2)], [(10, 0.1)], [(30, 0.4)]]
    found = _summary(courses, [0.2])
    assert found["steps"][0] == {"median": 20.0, "quartiles": [10.0, None], "reached": pytest.approx(2 / 3)}
    assert found["end"]["median"] == 0.2


def test_a_verdict_is_wrong_where_the_truth_contradicts_it() -> None:
    assert is_wrong("better", 0.001, 0.01) and is_wrong("worse", -0.001, 0.01)
    assert is_wrong("equivalent", 0.02, 0.01) and not is_wrong("equivalent", 0.005, 0.01)
    assert not is_wrong("undecided", 0.5, 0.01) and not is_wrong("better", -0.02, 0.01)


def test_verdicts_and_the_time_of_a_suggestion_can_be_measured_alone() -> None:
    assert chosen_parts(()) == (list(CONTENDERS), list(PARTS))
    assert chosen_parts(["verdicts"]) == ([], ["verdicts"])
    assert chosen_parts(["suggestion", "PriorBand"]) == (["NePS: PriorBand"], ["suggestion"])
    assert chosen_parts(["race"])[1] == [] and "race + TPE" in chosen_parts(["race"])[0]
