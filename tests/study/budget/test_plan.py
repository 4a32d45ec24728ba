"""What a study will take: rungs, steps, hours and money by hand, and a probe of real steps."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.study.budget.plan import (
    START_S,
    TRIAL_S,
    Plan,
    Probe,
    Range,
    Rung,
    local_concurrency,
    measure,
    plan,
    rungs,
)

PROBE = Probe(step_s=Range(0.1, 0.2), evaluation_s=Range(1.0, 2.0), checkpoint_s=Range(0.5, 1.0))


def study(**sections: Any) -> StudyConfig:
    """100 steps, evaluated every 10; 9 trials; two confirmed configs and the presets on three pairs."""
    plain: dict[str, Any] = {
        "name": "a",
        "training": {"steps": 100, "eval_every": 10},
        "scheduler": {"name": "asha", "grace": 10, "reduction": 3},
        "budget": {"trials": 9},
        "confirm": {"configs": 2, "runs": 3},
    }
    return StudyConfig.model_validate(plain | sections)


def laddered(trials: int, **scheduler: Any) -> list[tuple[int, int, int]]:
    found = rungs(study(scheduler=scheduler), trials)
    return [(rung.step, rung.low, rung.high) for rung in found]


def test_successive_halving_keeps_one_in_reduction_at_every_rung_or_at_most_all() -> None:
    found = laddered(27, name="asha", grace=10, reduction=3)
    assert found == [(10, 27, 27), (30, 9, 27), (90, 3, 27), (100, 1, 27)]


def test_a_part_of_a_trial_counts_as_a_trial() -> None:
    assert laddered(10, name="asha", grace=20, reduction=4) == [(20, 10, 10), (80, 3, 10), (100, 1, 10)]


def test_the_rungs_are_those_that_ray_has() -> None:
    from cbe.study.search.scheduling import SCHEDULERS

    for grace, reduction in ((10, 3), (20, 2), (0.1, 4), (100, 2), (90, 5)):
        config = study(scheduler={"name": "asha", "grace": grace, "reduction": reduction})
        (bracket,) = SCHEDULERS["asha"](config)._brackets
        wanted = {step for step, _ in bracket._rungs} | {100}
        assert {rung.step for rung in rungs(config, 9)} == wanted


def test_a_race_keeps_one_in_reduction_of_what_is_sampled_on_its_first_pair() -> None:
    # Of 30 trials 19 are on the first pair, two of them fixed: 17, 6 and 2 beside 13 that nobody stops.
    config = study(scheduler="race", budget={"trials": 30})
    found = [(rung.step, rung.low, rung.high) for rung in rungs(config, 30)]
    assert found == [(50, 30, 30), (70, 19, 30), (100, 15, 30)]
    grid = study(scheduler="race", sampler="grid", search={"loss.weights.lb": [0.5, 1, 2]}, seeds=[0, 1])
    assert [rung.low for rung in rungs(grid, 10)] == [10, 4 + 2, 4 + 1]


def test_the_rungs_of_a_plan_are_those_of_the_race() -> None:
    config = study(scheduler="race", budget={"trials": 30})
    assert [rung.step for rung in rungs(config, 30)] == [*config.scheduler.rung_steps(config.training), 100]


def test_without_stopping_all_trials_run_to_the_end() -> None:
    assert laddered(9, name="none") == [(100, 9, 9)]


def test_the_median_rule_is_expected_to_stop_half_after_the_grace() -> None:
    assert laddered(9, name="median", grace=30) == [(30, 9, 9), (100, 5, 9)]


def test_a_grace_of_the_whole_training_stops_nobody() -> None:
    for name in ("asha", "median"):
        assert laddered(9, name=name, grace=100) == [(100, 9, 9)]


def test_hyperband_fills_a_bracket_that_stops_nobody_and_then_those_that_start_shorter() -> None:
    # 3^4 is near 100, so a band has 5 brackets: the first of 5 trials, the second of 5/2·3, so 8, which keeps
    # 3 at a third of the steps, told at the evaluation after it.
    assert laddered(13, name="hyperband", reduction=3) == [(40, 13, 13), (100, 8, 13)]
    # The third bracket, of 15, begins at a ninth and keeps 5, then 2: both that it got go on.
    assert laddered(15, name="hyperband", reduction=3) == [(20, 15, 15), (40, 15, 15), (100, 10, 15)]


def test_hyperband_starts_a_new_band_when_one_is_full() -> None:
    found = laddered(1000, name="hyperband", reduction=3)
    assert all(rung[1] <= 1000 for rung in found)
    assert [rung[1] for rung in found] == sorted((rung[1] for rung in found), reverse=True)


def test_steps_are_those_of_every_stretch_between_rungs_and_of_the_confirmation() -> None:
    found = plan(study(), concurrent=2)
    assert found.rungs == (Rung(10, 9, 9), Rung(30, 3, 9), Rung(90, 1, 9), Rung(100, 1, 9))
    assert (found.trials, found.confirm_runs) == (9, 12)  # (2 + paper + base) · 3
    assert found.steps == Range(9 * 10 + 3 * 20 + 60 + 10 + 1200, 900 + 1200)


def test_without_a_probe_nothing_is_said_of_time_and_money() -> None:
    found = plan(study(budget={"trials": 9, "usd": 0.01}, resources={"usd_per_hour": 1}), concurrent=2)
    assert (found.wall_s, found.trial_hours, found.gpu_hours, found.usd) == (None, None, None, None)
    assert found.budget == {}


def test_time_is_that_of_steps_evaluations_checkpoints_and_starts() -> None:
    found = plan(study(scheduler="none", confirm={"runs": 0}), concurrent=1, probe=PROBE)
    one_low = 100 * 0.1 + 10 * 1.5 + TRIAL_S
    one_high = 100 * 0.2 + 10 * 3.0 + TRIAL_S
    assert found.wall_s is not None
    assert found.wall_s.low == pytest.approx(START_S + 9 * one_low)
    assert found.wall_s.high == pytest.approx(START_S + 9 * one_high)
    assert found.trial_hours is not None
    assert found.trial_hours.high == pytest.approx(9 * one_high / 3600)


@pytest.mark.parametrize("concurrent", [1, 2, 4, 8, 100])
def test_the_time_of_whole_trials_in_turns_lies_within_the_range(concurrent: int) -> None:
    steady = Probe(Range(0.1, 0.1), Range(1.0, 1.0), Range(0.5, 0.5))
    found = plan(study(scheduler="none"), concurrent=concurrent, probe=steady)
    one_s = 100 * 0.1 + 10 * 1.5 + TRIAL_S
    taken_s = START_S + one_s * (math.ceil(9 / concurrent) + math.ceil(12 / concurrent))
    assert found.wall_s is not None
    assert found.wall_s.low - 1e-9 <= taken_s <= found.wall_s.high + 1e-9


def test_money_and_gpus_are_counted_by_the_trial_and_not_by_the_clock() -> None:
    resources = {"workers": 2, "gpus": 0.5, "usd_per_hour": 3.0}
    few, many = (plan(study(resources=resources), concurrent=n, probe=PROBE) for n in (1, 7))
    assert few.usd == many.usd
    assert few.usd is not None and few.trial_hours is not None and few.gpu_hours is not None
    assert few.usd.high == pytest.approx(3 * few.trial_hours.high)
    assert few.gpu_hours.low == pytest.approx(few.trial_hours.low)  # two workers with half a card each


def test_gpus_left_open_are_one_where_the_probe_found_one() -> None:
    card = Probe(PROBE.step_s, PROBE.evaluation_s, PROBE.checkpoint_s, "NVIDIA L4")
    on_card, on_cpu = (plan(study(), concurrent=1, probe=probe) for probe in (card, PROBE))
    assert on_card.gpu_hours == on_card.trial_hours
    assert on_cpu.gpu_hours == Range(0, 0)


def test_several_workers_share_the_work_at_best_and_not_at_all_at_worst() -> None:
    one, two = (plan(study(resources={"workers": n}), concurrent=1, probe=PROBE) for n in (1, 2))
    assert one.wall_s is not None and two.wall_s is not None
    assert two.wall_s.low < one.wall_s.low
    assert two.wall_s.high == one.wall_s.high


@pytest.mark.parametrize("name", ["wall_hours", "gpu_hours", "usd"])
def test_a_limit_is_reached_surely_perhaps_or_not(name: str) -> None:
    resources = {"gpus": 1, "usd_per_hour": 2.0}
    free = plan(study(resources=resources), concurrent=2, probe=PROBE)
    assert free.wall_s is not None and free.gpu_hours is not None and free.usd is not None
    taken = {"wall_hours": free.wall_s.times(1 / 3600), "gpu_hours": free.gpu_hours, "usd": free.usd}[name]
    assert taken.low < taken.high

    def reached(limit: float) -> dict[str, str]:
        budget = {"trials": 9, name: limit}
        return dict(plan(study(resources=resources, budget=budget), concurrent=2, probe=PROBE).budget)

    assert reached(taken.low * 0.99) == {name: "yes"}
    assert reached((taken.low + taken.high) / 2) == {name: "maybe"}
    assert reached(taken.high * 1.01) == {name: "no"}


def test_a_grid_has_no_more_trials_than_points_and_presets() -> None:
    grid = {"sampler": "grid", "search": {"method.threshold": [0.8, 0.9, 0.95]}, "seeds": [0, 1]}
    assert plan(study(**grid, budget={}), concurrent=1).trials == (3 + 2) * 2
    assert plan(study(**grid, budget={"trials": 50}), concurrent=1).trials == (3 + 2) * 2
    assert plan(study(**grid, budget={"trials": 7}), concurrent=1).trials == 7


def test_no_more_configs_are_confirmed_than_were_tried() -> None:
    assert plan(study(budget={"trials": 3}), concurrent=1).confirm_runs == (2 + 1) * 3
    assert plan(study(budget={"trials": 1}), concurrent=1).confirm_runs == 1 * 3
    assert plan(study(confirm={"runs": 0}), concurrent=1).confirm_runs == 0


def test_searched_keys_that_change_what_a_step_takes_are_named() -> None:
    search = {"training.lr": {"float": [0.01, 0.1]}, "training.batch_size": [16, 32]}
    assert plan(study(search=search), concurrent=1).varies == ("training.batch_size",)
    heads = {"ensemble.heads": [2, 5]}
    assert plan(study(search=heads), concurrent=1).varies == ()
    assert plan(study(search=heads, ensemble="model"), concurrent=1).varies == ("ensemble.heads",)


def test_a_plan_is_json() -> None:
    plain = json.loads(json.dumps(plan(study(), concurrent=2, probe=PROBE).to_plain(), allow_nan=False))
    assert plain["rungs"][1] == {"step": 30, "low": 3, "high": 9}
    assert plain["probe"]["step_s"] == {"low": 0.1, "high": 0.2}


def test_as_many_trials_at_once_as_the_cores_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert local_concurrency(study(resources={"cpus": 3})) == 5
    assert local_concurrency(study(resources={"cpus": 3, "workers": 2})) == 2
    assert local_concurrency(study(resources={"cpus": 3, "concurrent": 4})) == 4
    assert local_concurrency(study(resources={"cpus": 64, "concurrent": 4})) == 4  # a cluster that grows
    with pytest.raises(InputError, match=r"1 × \(64 CPU, 0 GPU\), this machine has 16 CPU and 0 GPU"):
        local_concurrency(study(resources={"cpus": 64}))


def test_cards_limit_the_trials_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert local_concurrency(study()) == 2
    assert local_concurrency(study(resources={"gpus": 0.25})) == 8
    assert local_concurrency(study(resources={"gpus": 0})) == 16


SMALL: dict[str, Any] = {
    "data": {"source": "digits", "validation": 100},
    "model": "wrn-10-1",
    "training": {"steps": 20, "eval_every": 10, "batch_size": 4, "unlabeled_ratio": 1},
}


def test_a_probe_of_real_steps_gives_times_that_a_plan_can_be_made_of() -> None:
    threads = torch.get_num_threads()
    said: list[str] = []
    probe = measure(study(**SMALL, resources={"cpus": threads + 1}), steps=2, say=said.append)
    told = [re.sub(r"[\d,]+ ms", "N ms", line) for line in said]
    assert told[:4] == [
        "Measuring the file's own config (1 of 2): some steps, an evaluation, a checkpoint …",
        "the file's own config: N ms a step",
        "Measuring the base (2 of 2): some steps, an evaluation, a checkpoint …",
        "the base: N ms a step",
    ]
    assert torch.get_num_threads() == threads
    for measured in (probe.step_s, probe.evaluation_s, probe.checkpoint_s):
        assert 0 < measured.low <= measured.high < math.inf
    found: Plan = plan(study(**SMALL), concurrent=2, probe=probe)
    assert found.wall_s is not None
    assert START_S < found.wall_s.low < found.wall_s.high < math.inf
