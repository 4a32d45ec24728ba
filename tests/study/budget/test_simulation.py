"""A study on a made-up clock: who runs when, whom Ray's scheduler stops, what is paid; `cbe plan --gpus`."""

from __future__ import annotations

import heapq
import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.tune.schedulers import TrialScheduler

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.study.budget.plan import START_S, TRIAL_S, Probe, Range
from cbe.study.budget.simulation import HAND_OUT_S, forecast, replay
from cbe.study.budget.trial_history import GUESSES, Course, Past, guessed, judged, recorded
from cbe.study.scaling.machines import Cluster
from cbe.study.search.scheduling import SCHEDULERS
from tests.conftest import Cbe
from tests.made import SECTIONS, Made, whole

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


def test_a_forecast_prices_what_is_paid_and_says_which_budget_it_spends() -> None:
    config = study(
        resources={"gpus": 0.5, "usd_per_hour": 2.0}, budget={"trials": 9, "usd": 0.5, "gpu_hours": 9}
    )
    found = forecast(config, lasting(600, 700, 800), [1, 8])
    for each in found.outlooks:
        assert each.usd.low == pytest.approx(4 * each.paid_gpu_hours.low)  # two trials a GPU
        assert 0 < each.utilisation <= 1
        assert each.budget == {"usd": "yes", "gpu_hours": "no"}
    assert found.outlooks[0].wall_s.low > found.outlooks[1].wall_s.high
    (priced,) = forecast(config, lasting(600), [1], usd_per_gpu_hour=0.1).outlooks
    assert priced.usd.high == pytest.approx(0.1 * priced.paid_gpu_hours.high)
    json.dumps(found.to_plain(), allow_nan=False)


def test_faster_hardware_shortens_trials_and_not_the_start_of_machines() -> None:
    slow, fast = (forecast(study(), lasting(100), [1], speed=speed).outlooks[0] for speed in (1.0, 10.0))
    assert fast.busy_gpu_hours.low == pytest.approx(slow.busy_gpu_hours.low / 10)
    assert slow.wall_s.low - fast.wall_s.low == pytest.approx(9 * 90)


@pytest.mark.parametrize(
    ("resources", "gpus", "text"),
    [({"gpus": 0}, 8, r"resources\.gpus: is 0"), ({"gpus": 4}, 3, "--gpus 3: a trial of this study wants 4")],
)
def test_a_study_that_no_gpu_would_serve_is_refused(resources: Any, gpus: int, text: str) -> None:
    with pytest.raises(InputError, match=text):
        forecast(study(resources=resources), lasting(10), [gpus])


# --- the record


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return whole(tmp_path)


def test_recorded_trials_take_what_they_took(made: Made) -> None:
    past = recorded(made.study, made.folder)
    assert past is not None
    assert judged(made.study) == (150, 200, 300)
    assert all(each.seconds == pytest.approx((10, 200 / 15, 20)) for each in past.sampled)
    assert len(past.sampled) == 12  # not the one that failed
    assert {name: len(some) for name, some in past.fixed.items()} == {"paper": 4, "base": 4}
    assert (past.study, past.devices, past.differs) == ("made", ("cpu",), ())
    assert past.sampled[0].objective[-1] == pytest.approx(0.09)


def test_a_trial_that_was_stopped_goes_on_at_its_own_pace_as_the_one_nearest_to_it(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.05, {"ensemble.heads": 2})
    made.trial(0.30, {"ensemble.heads": 3})
    made.trial(0.40, {"ensemble.heads": 4}, state="pruned")  # at 100
    past = recorded(made.study, made.folder)
    assert past is not None
    best, worse, stopped = past.sampled
    assert stopped.seconds == pytest.approx((10, 200 / 15, 20))
    edge = 0.30 + 0.60 * 2.718281828**-2  # of the nearest, at 100
    assert stopped.objective[-1] == pytest.approx(0.40 + 0.30 - edge)
    assert best.objective[-1] < worse.objective[-1]


def test_what_a_trial_takes_before_its_steps_is_taken_once_whatever_its_length(tmp_path: Path) -> None:
    made = Made(tmp_path)
    name = made.trial(None, {"ensemble.heads": 2})
    curve = [
        {"trial": name, "step": s, "wall_s": 5 + s / 10, "validation_error": 0.5} for s in (50, 100, 300)
    ]
    made.folder.append("metrics", curve)
    longer = made.study.model_copy(
        update={"training": made.study.training.model_copy(update={"steps": 600, "eval_every": 100})}
    )
    past = recorded(longer, made.folder)
    assert past is not None
    assert judged(longer) == (300, 400, 600)
    assert past.sampled[0].seconds == pytest.approx((35, 45, 65))


def test_a_record_of_other_steps_is_said_to_be_one(made: Made) -> None:
    other = StudyConfig.model_validate(
        {"name": "b", **SECTIONS, "model": "wrn-28-2", "resources": {"workers": 2}}
    )
    past = recorded(other, made.folder)
    assert past is not None
    assert past.differs == ("model.name", "resources.workers")


def test_a_study_without_a_report_is_no_record(tmp_path: Path) -> None:
    made = Made(tmp_path)
    assert recorded(made.study, made.folder) is None
    made.trial(None, state="failed", steps=0)
    assert recorded(made.study, made.folder) is None


def test_early_trials_are_drawn_from_early_ones_and_late_from_late() -> None:
    past, rng = lasting(*range(1, 101)), random.Random(0)
    early, late = ({past.draw(None, place, rng).seconds[0] for _ in range(300)} for place in (0.0, 1.0))
    assert early == set(range(1, 26)) and late == set(range(76, 101))


def test_no_two_draws_are_equally_good() -> None:
    past, rng = lasting(5), random.Random(0)
    assert len({past.draw(None, 0.5, rng).objective for _ in range(100)}) == 100


def test_without_a_record_trials_take_what_was_measured() -> None:
    config = study(**ASHA)
    probe = Probe(Range(0.1, 0.2), Range(1.0, 2.0), Range(0.5, 1.0), "NVIDIA L4")
    past = guessed(config, probe)
    assert len(past.sampled) == GUESSES and past.devices == ("NVIDIA L4",)
    ends = [each.seconds[-1] for each in past.sampled]
    assert TRIAL_S + 100 * 0.25 <= min(ends) < max(ends) <= TRIAL_S + 100 * 0.5
    found = replay(study(**ASHA, budget={"trials": 300}), past, here(8))
    assert 0.3 < found.pruned / 300 < 0.95


def test_a_forecast_starts_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    started: list[object] = []
    monkeypatch.setattr(ray, "init", lambda *given, **named: started.append(given))
    past = Past((Course((10,), (1.0,), (0.1,)),))
    forecast(StudyConfig.model_validate({"name": "a", "training": {"steps": 10}}), past, [1, 8])
    assert not started


# --- the command


@pytest.fixture
def file(made: Made, tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    plain = {"name": "made", **SECTIONS, "storage": str(tmp_path), "resources": {"usd_per_hour": 3.6}}
    path.write_text(yaml.safe_dump(plain))
    return path


def test_the_command_answers_for_every_number_of_gpus_by_the_study_s_own_record(
    file: Path, cbe_: Cbe
) -> None:
    done = cbe_("plan", file, "--gpus", "8, 1,64", "--trials", 100, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["trials"], found["like"], found["recorded"]) == (100, "made", 12)
    assert [each["gpus"] for each in found["outlooks"]] == [1, 8, 64]
    for each in found["outlooks"]:
        assert each["usd"]["low"] == pytest.approx(3.6 * each["paid_gpu_hours"]["low"])
    walls = [each["wall_s"]["low"] for each in found["outlooks"]]
    assert walls == sorted(walls, reverse=True)


def test_the_command_says_what_its_answer_rests_on(file: Path, cbe_: Cbe) -> None:
    done = cbe_("plan", file, "--gpus", "1,8", "--speed", 20, "--node-start", 60, "--idle", 120)
    assert done.code == 0, done.err
    assert "made: 12 trials and 9 runs to confirm" in done.out
    assert "GPU-hours paid" in done.out and "USD" in done.out
    assert "as the 12 recorded trials of made went, 20 times as fast" in done.words
    assert "recorded on a CPU" in done.words
    assert "60 s before their first trial until 120 s after their last" in done.words
    assert "budget" not in done.words
    assert max(map(len, done.out.splitlines())) <= 80


def test_another_study_may_be_the_measure(file: Path, cbe_: Cbe) -> None:
    plain = yaml.safe_load(file.read_text()) | {"name": "new", "model": "wrn-28-2"}
    file.write_text(yaml.safe_dump(plain))
    done = cbe_("plan", file, "--gpus", 4, "--like", "made", "--set", "budget.usd=0.001")
    assert done.code == 0, done.err
    assert "new: 12 trials" in done.out
    assert "made has another model.name" in done.words
    assert "budget.usd may end the study early on 4 GPUs" in done.words


def test_without_a_record_the_command_probes(file: Path, cbe_: Cbe, tmp_path: Path) -> None:
    small = {"steps": 20, "eval_every": 10, "batch_size": 4, "unlabeled_ratio": 1}
    file.write_text(yaml.safe_dump({"name": "new", **SECTIONS, "training": small}))
    done = cbe_("plan", file, "--gpus", "1,2", "--store", tmp_path / "empty")
    assert done.code == 0, done.err
    assert "of what a few steps took here; which are pruned is drawn at random" in done.words


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--gpus", "1,x"), "--gpus 1,x: wanted whole numbers"),
        (("--gpus", "0"), "--gpus 0: wanted whole numbers"),
        (("--gpus", "1,,2"), "wanted whole numbers"),
        (("--gpus", "1e9"), "wanted whole numbers"),
        (("--gpus", "2", "--like", "mede"), "holds no study mede; did you mean made?"),
        (("--gpus", "2", "--speed", "0"), "--speed 0: wanted a number above 0"),
        (("--gpus", "2", "--idle", "-1"), "--idle -1: wanted a number from 0"),
        (("--gpus", "2", "--node-start", "nan"), "--node-start nan: wanted a number from 0"),
        (("--gpus", "2", "--concurrent", "2"), "--concurrent: with --gpus"),
        (("--gpus", "2", "--set", "resources.gpus=0"), "resources.gpus: is 0"),
        (("--gpus", "2", "--trials", "10001"), "budget.trials: 10,001 are more than can be played through"),
        (("--trials", "9"), "are for --gpus; add it"),
        (("--like", "made"), "are for --gpus; add it"),
    ],
)
def test_what_cannot_be_answered_is_told(file: Path, cbe_: Cbe, options: tuple[str, ...], text: str) -> None:
    done = cbe_("plan", file, *options)
    assert done.code == 2
    assert text in " ".join(done.err.split())


def test_a_named_study_without_reports_is_refused(file: Path, cbe_: Cbe, tmp_path: Path) -> None:
    Made(tmp_path, "empty")
    done = cbe_("plan", file, "--gpus", 2, "--like", "empty")
    assert done.code == 2
    assert "--like empty: no trial of it has reported" in done.err
