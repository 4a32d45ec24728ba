"""The forecast: what it rests on, what it prices, and the command that prints it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.study.budget.forecast import forecast
from cbe.study.budget.plan import TRIAL_S, Probe, Range
from cbe.study.budget.simulation import replay
from cbe.study.budget.trial_history import GUESSES, Course, Past, guessed, judged, recorded
from tests.conftest import Cbe
from tests.made import SECTIONS, Made, whole
from tests.study.budget.test_simulation import ASHA, here, lasting, study


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
