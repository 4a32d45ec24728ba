"""A study on a made-up clock: who runs when, whom Ray's scheduler stops, what is paid; `cbe plan --gpus`."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from cbe.spec import StudyConfig
from cbe.study.budget.forecast import forecast
from cbe.study.budget.plan import START_S
from cbe.study.budget.simulation import HAND_OUT_S, replay
from cbe.study.budget.trial_history import Course, Past, judged
from cbe.study.scaling.machines import Cluster
from cbe.study.search.scheduling import SCHEDULERS

SEARCH = {"training.lr": {"float": [0.01, 0.1]}}


def study(**sections: Any) -> StudyConfig:
    """100 steps, evaluated every 10; 9 trials that nobody stops and nobody confirms."""
    plain: dict[str, Any] = {
        "name": "a",
        "training": {"steps": 100, "eval_every": 10},
        "search": SEARCH,
        "scheduler": "none",
        "budget": {"trials": 9},
        "confirm": "off",
    }
    return StudyConfig.model_validate(plain | sections)


def here(gpus: int) -> Cluster:
    """GPUs that are there at once and cost nothing when they are idle."""
    return Cluster(gpus, node_start_s=0, idle_s=0)


def lasting(*seconds: float) -> Past:
    return Past(tuple(Course((100,), (each,), (0.5,)) for each in seconds))


def learning(config: StudyConfig, count: int = 40) -> Past:
    """Trials of 30 to 60 s that get better, each at its own rate."""
    rng, steps = random.Random(1), judged(config)

    def course() -> Course:
        all_s, at_last = rng.uniform(30, 60), rng.random()
        seconds = tuple(all_s * step / 100 for step in steps)
        return Course(steps, seconds, tuple(at_last + 0.3 * rng.random() / step for step in steps))

    return Past(tuple(course() for _ in range(count)))


ASHA = {"scheduler": {"name": "asha", "grace": 10, "reduction": 3}}


# --- the clock


def test_one_place_takes_the_sum_of_all_trials() -> None:
    found = replay(study(), lasting(7), here(1))
    assert found.wall_s == pytest.approx(START_S + 9 * (7 + HAND_OUT_S))
    assert found.busy_gpu_s == pytest.approx(9 * 7)
    assert (found.completed, found.pruned, found.confirmed) == (9, 0, 0)


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_place_that_is_free_takes_the_next_trial(gpus: int) -> None:
    past, taken = lasting(*range(10, 60, 3)), random.Random(5)
    durations = [
        past.draw("paper" if at == 0 else "base" if at == 1 else None, at / 8, taken) for at in range(9)
    ]
    free, driver_s = [START_S] * gpus, START_S
    for each in durations:
        driver_s = max(heapq.heappop(free), driver_s) + HAND_OUT_S
        heapq.heappush(free, driver_s + each.seconds[-1])
    assert replay(study(), past, here(gpus), seed=5).wall_s == pytest.approx(max(free))


def test_the_same_seed_draws_the_same_trials_on_however_many_gpus() -> None:
    past = lasting(*range(10, 60))
    one, again, many, other = (
        replay(study(), past, here(n), seed) for n, seed in ((1, 3), (1, 3), (8, 3), (1, 4))
    )
    assert one == again
    assert one.busy_gpu_s == pytest.approx(many.busy_gpu_s)
    assert one.busy_gpu_s != other.busy_gpu_s


def test_a_driver_hands_out_one_trial_after_the_other() -> None:
    found = replay(study(budget={"trials": 500}), lasting(1), here(512))
    assert found.wall_s == pytest.approx(START_S + 500 * HAND_OUT_S + 1)


def test_more_gpus_are_not_slower() -> None:
    config = study(**ASHA, budget={"trials": 100}, confirm={"configs": 2, "runs": 3})
    past = learning(config)
    taken = [
        median(replay(config, past, Cluster(n), seed).wall_s for seed in range(5)) for n in (1, 2, 4, 8, 16)
    ]
    assert all(more < 1.05 * fewer for fewer, more in pairwise(taken))
    assert taken[-1] < taken[0] / 4


# --- the agenda


def test_the_best_are_confirmed_when_the_search_has_ended_and_the_fixed_before() -> None:
    # Two places: paper and base of 10 s, one sampled of 50 s; then 3 × (paper, base) of 10 s beside it, and
    # 3 × the best of 50 s.
    config = study(budget={"trials": 3}, confirm={"configs": 1, "runs": 3})
    ten, fifty = Course((100,), (10.0,), (0.5,)), Course((100,), (50.0,), (0.4,))
    past = Past((fifty,), {"paper": (ten,), "base": (ten,)})
    found = replay(config, past, here(2))
    assert found.confirmed == 9
    # The sampled one ends at 60; the other place has five of the six by then, and the sixth until 70.
    assert found.wall_s == pytest.approx(START_S + 60 + 50 + 50, abs=10 * HAND_OUT_S + 1e-9)
    assert replay(config, past, here(1)).wall_s == pytest.approx(START_S + 70 + 60 + 150 + 12 * HAND_OUT_S)


def test_a_config_that_is_not_ahead_of_the_base_is_not_confirmed() -> None:
    config = study(budget={"trials": 3}, confirm={"configs": 1, "runs": 3})
    same = Course((100,), (10.0,), (0.5,))
    past = Past((same,), {"paper": (same,), "base": (same,)})
    assert replay(config, past, here(2)).confirmed == 6  # the paper's config and the base


def test_no_config_is_confirmed_that_was_stopped() -> None:
    config = study(**ASHA, confirm={"configs": 9, "runs": 1})
    found = replay(config, learning(config), here(2))
    assert found.pruned > 0 and found.completed + found.pruned == 9
    assert 2 < found.confirmed <= 2 + found.completed


def test_a_config_on_several_seeds_counts_as_one() -> None:
    config = study(seeds=[0, 1], budget={"trials": 10}, confirm={"configs": 9, "runs": 2})
    behind = (Course((100,), (5,), (0.9,)),)
    past = replace(lasting(5), fixed={"paper": behind, "base": behind})
    assert replay(config, past, here(3)).confirmed == (2 + 3) * 2


# --- the scheduler


def plainly(config: StudyConfig, past: Past, places: int, seed: int) -> tuple[int, int]:
    """Completed and stopped trials, by Ray's scheduler and a loop that looks for the next report of all."""
    rng, asha, waiting = random.Random(seed), SCHEDULERS["asha"](config), 9
    nobody: Any = None
    running: list[tuple[float, int, Any, Course]] = []  # when, reports before it, of which
    now, driver_s, ended = START_S, START_S, [0, 0]
    while waiting or running:
        while waiting and len(running) < places:
            at = 9 - waiting
            course = past.draw("paper" if at == 0 else "base" if at == 1 else None, at / 8, rng)
            trial: Any = SimpleNamespace(trial_id=str(at)) if at > 1 else None  # presets are never stopped
            if trial:
                asha.on_trial_add(nobody, trial)
            driver_s, waiting = max(now, driver_s) + HAND_OUT_S, waiting - 1
            running.append((driver_s + course.seconds[0], 0, trial, course))
        first = min(running, key=lambda each: each[0])
        running.remove(first)
        now, done, trial, course = first
        report = {"step": course.steps[done], "validation_error": course.objective[done]}
        stop = trial and asha.on_trial_result(nobody, trial, report) == TrialScheduler.STOP
        if done + 1 == len(course.steps):
            ended[0] += 1
        elif stop:
            ended[1] += 1
        else:
            running.append((now + course.seconds[done + 1] - course.seconds[done], done + 1, trial, course))
    return ended[0], ended[1]


@pytest.mark.parametrize("places", [1, 2, 4, 9])
def test_asha_stops_whom_it_would_stop_by_the_same_reports_in_the_same_order(places: int) -> None:
    config = study(**ASHA)
    past = learning(config)
    for seed in range(5):
        found = replay(config, past, here(places), seed)
        assert (found.completed, found.pruned) == plainly(config, past, places, seed)
    assert found.pruned


def test_whom_asha_stops_depends_on_who_reports_first() -> None:
    config = study(**ASHA, budget={"trials": 100})
    past = learning(config)
    assert len({replay(config, past, here(n)).pruned for n in (1, 4, 32, 100)}) > 1


def test_reports_between_the_rungs_decide_nothing() -> None:
    config, rng = study(**ASHA), random.Random(2)
    assert judged(config) == (10, 30, 90, 100)
    all_steps = tuple(range(10, 101, 10))
    curves = [(rng.uniform(1, 2), [rng.random() / step for step in all_steps]) for _ in range(20)]

    def at(steps: tuple[int, ...]) -> Past:
        return Past(
            tuple(
                Course(steps, tuple(each_s * s for s in steps), tuple(values[s // 10 - 1] for s in steps))
                for each_s, values in curves
            )
        )

    for seed in range(5):
        few, every = (replay(config, at(steps), here(3), seed) for steps in (judged(config), all_steps))
        assert few.pruned == every.pruned > 0
        assert few.wall_s == pytest.approx(every.wall_s)


@pytest.mark.parametrize("name", ["hyperband", "median", "pbt"])
def test_every_scheduler_comes_to_the_end(name: str) -> None:
    often = {"steps": 81, "eval_every": 1}
    config = study(scheduler=name, training=often, budget={"trials": 30}, confirm={"configs": 1, "runs": 2})
    found = replay(config, learning(config), here(16))
    assert found.completed + found.pruned == 30
    assert found.confirmed == 6
    assert (found.pruned == 0) == (name == "pbt")  # a population stops nobody


def slow_base(past: Past) -> Past:
    """The same with presets that are behind all others."""
    behind = tuple(replace(each, objective=tuple(9.0 for _ in each.objective)) for each in past.sampled)
    return replace(past, fixed={"paper": behind, "base": behind})


@pytest.mark.parametrize("gpus", [1, 3, 40])
def test_a_race_has_its_first_pair_then_the_best_on_further_ones(gpus: int) -> None:
    config = study(scheduler="race", budget={"trials": 30}, confirm={"configs": 1, "runs": 2})
    found = replay(config, slow_base(learning(config)), here(gpus))
    further = found.completed + found.pruned - config.first_pair_trials
    assert (2 + 3) + (2 + 1) <= further <= (2 + 5) + (2 + 2)
    assert 8 <= found.pruned <= 14 and found.confirmed == 3 * 2
    assert found.wall_s >= 60 / gpus


def test_a_race_in_which_nobody_is_ahead_of_the_base_has_one_pair() -> None:
    config = study(scheduler="race", budget={"trials": 30}, confirm={"configs": 1, "runs": 2})
    ahead = (Course((50, 70, 100), (1, 2, 3), (0.0, 0.0, 0.0)),)
    past = replace(learning(config), fixed={"paper": ahead, "base": ahead})
    found = replay(config, past, here(3))
    assert found.completed + found.pruned == config.first_pair_trials and found.confirmed == 2 * 2


def test_a_hyperband_whose_rungs_are_closer_than_evaluations_comes_to_its_end() -> None:
    config = study(scheduler="hyperband", training={"steps": 300, "eval_every": 50}, budget={"trials": 500})
    found = replay(config, learning(config), here(8))
    assert found.completed + found.pruned == 500


def test_500_trials_on_512_gpus_all_end() -> None:
    config = study(**ASHA, budget={"trials": 500}, confirm={"configs": 3, "runs": 5})
    found = replay(config, learning(config), Cluster(512))
    assert found.completed + found.pruned == 500
    assert found.confirmed == 25


# --- what is paid


def test_a_machine_is_paid_from_its_start_to_the_end_of_its_idle_time() -> None:
    found = replay(study(), lasting(7), Cluster(1, node_start_s=100, idle_s=60))
    assert found.wall_s == pytest.approx(START_S + 100 + 9 * 7 + 8 * HAND_OUT_S)
    assert found.paid_gpu_s == pytest.approx(100 + 9 * 7 + 8 * HAND_OUT_S + 60)


def test_no_more_machines_are_paid_than_there_are_trials() -> None:
    config, past = study(budget={"trials": 3}), lasting(7)
    found = replay(config, past, Cluster(512, node_start_s=100, idle_s=60))
    assert found.paid_gpu_s == pytest.approx(3 * (100 + 7 + 60), abs=1)


def test_a_machine_that_was_idle_for_too_long_must_start_again() -> None:
    # Paper and base of 10 s on two machines; then a sampled one of 200 s on the one, and paper and base twice
    # on the other, which then has nothing to do for 160 s, until the best is confirmed twice.
    config = study(budget={"trials": 3}, confirm={"configs": 1, "runs": 2})
    short, long = Course((100,), (10.0,), (0.5,)), Course((100,), (200.0,), (0.4,))
    past = Past((long,), {"paper": (short,), "base": (short,)})
    stayed, left = (replay(config, past, Cluster(2, node_start_s=30, idle_s=each)) for each in (1000, 20))
    assert stayed.wall_s == pytest.approx(START_S + 30 + 10 + 200 + 200, abs=1)
    assert left.wall_s == pytest.approx(stayed.wall_s + 30, abs=1)
    assert stayed.paid_gpu_s == pytest.approx(2 * (30 + 410 + 1000), abs=1)
    assert left.paid_gpu_s == pytest.approx((30 + 410 + 20) + (30 + 50 + 20) + (30 + 200 + 20), abs=1)


@pytest.mark.parametrize("gpus", [1, 8, 64])
def test_what_is_paid_is_never_less_than_what_is_used(gpus: int) -> None:
    config = study(**ASHA, budget={"trials": 60}, confirm={"configs": 2, "runs": 3})
    past = learning(config)
    for cluster in (here(gpus), Cluster(gpus), Cluster(gpus, 30, 0), Cluster(gpus, 0, 5)):
        found = replay(config, past, cluster)
        assert found.paid_gpu_s >= found.busy_gpu_s > 0


def test_trials_share_a_gpu_and_one_trial_may_take_several() -> None:
    past = lasting(10)
    half = replay(study(resources={"gpus": 0.5}), past, Cluster(1, 0, 0))
    assert half.wall_s == pytest.approx(START_S + 5 * 10, abs=1)
    assert half.busy_gpu_s == pytest.approx(9 * 10 / 2)
    assert half.paid_gpu_s == pytest.approx(5 * 10, abs=1)
    four = replay(study(resources={"gpus": 2, "workers": 2}), past, Cluster(9, 0, 0))
    assert four.wall_s == pytest.approx(START_S + 5 * 10, abs=1)  # two at once
    assert four.busy_gpu_s == pytest.approx(9 * 10 * 4)


def test_a_study_that_limits_itself_leaves_gpus_unused() -> None:
    config = study(resources={"concurrent": 2})
    (found,) = forecast(config, lasting(10), [64], replays=1).outlooks
    assert found.trials_at_once == 2
    assert found.wall_s.low > START_S + 5 * 10
