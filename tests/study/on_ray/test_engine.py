"""A study from end to end: what ran, what was stopped, what the sampler and the store were told."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import cbe
from cbe.errors import RunError
from cbe.report.lookup import data_facts
from cbe.spec import StudyConfig
from cbe.store.folder import Store, StudyFolder
from cbe.store.schema import TABLES
from cbe.store.states import status
from cbe.study.overview import is_current
from cbe.study.trial.log import read_log
from tests.study.bodies import bowl
from tests.study.conftest import actors, curve, groups, rows, run, study
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def finished(
    cluster: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[StudyConfig, StudyFolder]]:
    """A whole study of real trainings, confirmation included, run as from Python."""
    place = tmp_path_factory.mktemp("finished")
    config = study(budget={"trials": 8}, confirm={"configs": 1, "runs": 2})
    done = cbe.run(config, place, show=False)
    assert done.stop_reason is None and done.best().confirmed
    yield config, Store.open(str(place)).study(config.name)


def sampled(folder: StudyFolder) -> dict[str, optuna.trial.FrozenTrial]:
    """The sampler's trials by our names, read as optuna-dashboard would."""
    backend = optuna.storages.journal.JournalFileBackend(folder.path("optuna.journal"))
    loaded = optuna.load_study(study_name="small", storage=optuna.storages.JournalStorage(backend))
    return {trial.user_attrs["trial"]: trial for trial in loaded.trials}


Finished = tuple[StudyConfig, StudyFolder]


def test_the_papers_config_and_the_base_are_the_first_two_trials(finished: Finished) -> None:
    _, folder = finished
    found = rows(folder)
    assert [found["t0000"]["preset"], found["t0001"]["preset"]] == ["paper", "base"]
    assert [found[name]["ensemble_kind"] for name in ("t0000", "t0001")] == ["channel", "single"]
    assert sum(row["role"] == "search" for row in found.values()) == 8


def test_early_stopping_is_told_as_what_it_is(finished: Finished) -> None:
    _, folder = finished
    found, told = rows(folder), sampled(folder)
    stopped = [name for name, row in found.items() if row["state"] == "pruned"]
    assert stopped and all(found[name]["step"] < 40 for name in stopped)
    for name, row in found.items():
        if row["role"] != "search" or name not in told:
            continue
        trial = told[name]
        assert trial.state == {"pruned": TrialState.PRUNED, "completed": TrialState.COMPLETE}[row["state"]]
        assert trial.intermediate_values == dict(curve(folder, name, "validation_error"))
        assert trial.value == pytest.approx(row["objective"])


def test_optuna_dashboard_opens_the_study(finished: Finished) -> None:
    from optuna_dashboard import wsgi
    from werkzeug.test import Client

    _, folder = finished
    backend = optuna.storages.journal.JournalFileBackend(folder.path("optuna.journal"))
    served = Client(wsgi(optuna.storages.JournalStorage(backend))).get("/api/studies").get_json()
    assert [found["study_name"] for found in served["study_summaries"]] == ["small"]


def test_nothing_is_left_running_after_a_study(finished: Finished) -> None:
    import ray

    until(lambda: actors() == [], what="the end of all processes")
    until(lambda: groups() == [], what="the end of all groups")
    until(lambda: ray.available_resources().get("CPU") == 2)  # which a node tells a moment later


def test_parameters_that_do_not_apply_are_absent_for_the_sampler_and_null_in_the_store(
    finished: Finished,
) -> None:
    _, folder = finished
    found, told = rows(folder), sampled(folder)
    assert "t0001" not in told  # the base lies outside this space
    assert found["t0001"]["ensemble_private_channels"] is None and found["t0001"]["ensemble_heads"] is None
    for name, trial in told.items():
        target = trial.params["loss.target"]
        assert ("loss.agreement" in trial.params) == (target == "hard")
        assert json.loads(found[name]["params"]) == trial.params
        assert found[name]["ensemble_heads"] == trial.params["ensemble.heads"]


def test_every_report_is_stored_once_with_its_confusions(finished: Finished) -> None:
    _, folder = finished
    for name, row in rows(folder).items():
        steps = [step for step, _, _ in curve(folder, name)]
        assert steps == list(range(10, row["step"] + 1, 10)), name
        assert row["objective"] == row["last_validation_error"]
        assert row["checkpoint"] == f"checkpoints/{name}/1/{row['step']:09d}.pt"
        assert folder.read(row["checkpoint"])
    confusions = folder.table("confusions").to_pylist()
    assert all(sum(map(sum, row["matrix"])) == 200 for row in confusions if row["kind"] == "validation")
    about = next(iter(rows(folder).values()))
    assert (
        about["parameters"] > 50_000
        and about["macs"] > 100_000
        and about["split"]
        and about["device"] == "cpu"
    )
    assert json.loads(about["versions"])["ray"] == "2.60.0"


def test_every_trial_has_a_log_of_its_evaluations(finished: Finished) -> None:
    _, folder = finished
    for name, row in rows(folder).items():
        first, *lines = read_log(folder, name).splitlines()
        assert first.endswith(f"begins, on cpu of {row['node']}")
        said = [int(line.partition(" step ")[2].split()[0]) for line in lines]
        steps = [step for step, *_ in curve(folder, name)]
        assert said == steps if row["state"] == "completed" else said[:1] == steps[:1]  # stopped where it was


def test_the_confirmation_has_seeds_and_splits_that_the_search_never_saw(finished: Finished) -> None:
    _, folder = finished
    found = list(rows(folder).values())
    searched, confirmed = ([row for row in found if row["role"] == role] for role in ("search", "confirm"))
    for key in ("seed", "label_split", "split"):
        assert {row[key] for row in searched}.isdisjoint(row[key] for row in confirmed)
    runs = Counter((row["config_id"], row["preset"]) for row in confirmed)
    fixed = {row["preset"]: row for row in searched if row["preset"]}
    ended = [row for row in searched if row["state"] == "completed" and not row["preset"]]
    best = min(ended, key=lambda row: (row["objective"], row["trial"]))
    ahead = [best] if best["objective"] < fixed["base"]["objective"] else []  # else it is not confirmed
    wanted = {(row["config_id"], row["preset"]): 2 for row in (*fixed.values(), *ahead)}
    assert runs == wanted


def test_a_finished_study_leaves_one_file_of_each_table_and_a_row_in_the_index(finished: Finished) -> None:
    config, folder = finished
    files = {table: folder.list(table) for table in TABLES}
    assert all(len(names) <= 1 for names in files.values()) and files["metrics"] and files["trials"]
    known = Store.open(str(Path(folder.uri).parent)).index.of(config.name)
    assert known.state == "finished" and is_current(folder, known)


def test_a_finished_study_has_nothing_left_to_run(finished: Finished, tmp_path: Path) -> None:
    config, folder = finished
    before = rows(folder)
    run(config, Path(folder.uri).parent)
    assert {name: row["revision"] for name, row in rows(folder).items()} == {
        name: row["revision"] for name, row in before.items()
    }


def test_a_median_ends_its_trials(tmp_path: Path) -> None:  # the other schedulers: the other studies here
    config = study(scheduler={"name": "median"}, search={"loss.weights.lb": {"float": [0.1, 3]}})
    _, folder = run(config, tmp_path, body=bowl)
    assert {row["state"] for row in rows(folder).values()} <= {"completed", "pruned"}


def test_a_hyperband_whose_rungs_are_closer_than_evaluations_leaves_no_trial_waiting(tmp_path: Path) -> None:
    config = study(
        scheduler={"name": "hyperband"},
        training={"eval_every": 20},
        search={"loss.weights.lb": {"float": [0.1, 3]}},
        budget={"trials": 24},
        resources={"concurrent": 8},
    )
    _, folder = run(config, tmp_path, body=bowl)
    states = Counter(row["state"] for row in rows(folder).values())
    assert states.keys() == {"completed", "pruned"}
    assert states.total() == 24


def test_a_grid_runs_each_point_once_on_each_seed(tmp_path: Path) -> None:
    space = {"ensemble.kind": ["channel", "single"], "loss.weights.lb": [0, 1]}
    config = study(sampler="grid", search=space, seeds=[0, 1], budget={}, scheduler="none")
    _, folder = run(config.model_copy(update={"budget": type(config.budget)()}), tmp_path, body=bowl)
    found = rows(folder).values()
    # channel × λ_lb 1 is the paper's config and single is the base: those are the presets' trials.
    assert Counter((row["ensemble_kind"], row["loss_weights_lb"], row["seed"]) for row in found) == {
        **{("channel", 1.0, seed): 1 for seed in (0, 1)},
        **{("channel", 0.0, seed): 1 for seed in (0, 1)},
        **{("single", None, seed): 1 for seed in (0, 1)},
    }


def test_several_seeds_of_a_config_are_several_trials_of_one_point(tmp_path: Path) -> None:
    config = study(search={"loss.weights.lb": {"float": [0.1, 3]}}, seeds=[3, 4], budget={"trials": 8})
    _, folder = run(config, tmp_path, body=bowl)
    runs = Counter(row["config_id"] for row in rows(folder).values())
    assert set(runs.values()) == {2} and len(runs) == 4


def test_several_objectives_are_pursued_together(tmp_path: Path) -> None:
    config = study(objective=["validation_error", "macs"], search={"loss.weights.lb": {"float": [0.1, 3]}})
    _, folder = run(config, tmp_path, body=bowl)
    for name, trial in sampled(folder).items():
        row = rows(folder)[name]
        if row["state"] == "completed":
            assert trial.values == row["values"] and len(trial.values) == 2


def test_points_that_cannot_be_built_cost_nothing_and_the_sampler_learns(tmp_path: Path) -> None:
    # wrn-10-1 has 64 channels: more than half of this range leaves no shared one.
    space = {"ensemble.private_channels": {"int": [20, 160]}, "loss.weights.lb": {"float": [0.1, 3]}}
    config = study(search=space, budget={"trials": 40}, scheduler="none", resources={"concurrent": 1})
    _, folder = run(config, tmp_path, body=bowl)
    found = [row for row in rows(folder).values() if not row["preset"]]
    infeasible = [row["state"] == "infeasible" for row in found]
    assert sum(not bad for bad in infeasible) == 38 and any(infeasible)
    bad = next(row for row in found if row["state"] == "infeasible")
    assert "does not leave a shared channel" in bad["error_text"] and bad["step"] is None
    half = len(found) // 2
    assert sum(infeasible[half:]) < sum(infeasible[:half])
    told = sampled(folder)
    assert told[bad["trial"]].state == TrialState.PRUNED and not told[bad["trial"]].intermediate_values


def test_a_loss_that_is_not_finite_ends_one_trial(tmp_path: Path) -> None:
    config = study(search={"training.lr": [0.06, 1e18]}, sampler="grid", scheduler="none")
    _, folder = run(config, tmp_path)
    found = rows(folder)
    failed = [row for row in found.values() if row["state"] == "failed"]
    assert [row["error_class"] for row in failed] == ["NonFiniteLoss"] and failed[0]["training_lr"] == 1e18
    assert sampled(folder)[failed[0]["trial"]].state == TrialState.PRUNED  # so that it is avoided
    assert "NonFiniteLoss: loss is not finite" in read_log(folder, failed[0]["trial"])
    assert sum(row["state"] == "completed" for row in found.values()) == len(found) - 1


def test_the_same_error_three_times_in_a_row_stops_the_study(tmp_path: Path) -> None:
    config = study(training={"lr": 1e18}, budget={"trials": 12}, resources={"concurrent": 1})
    with pytest.raises(
        RunError, match="small: 3 of the last 3 trials ended with NonFiniteLoss: loss is not finite"
    ):
        run(config, tmp_path)


def test_the_budget_of_hours_halts_a_study_and_resuming_goes_on(tmp_path: Path) -> None:
    short = study(budget={"trials": 4, "wall_hours": 1e-6})
    progress, folder = run(short, tmp_path)
    assert progress.stage == "stopped" and progress.stop_reason == "budget.wall_hours of 1e-06 is spent"
    unfinished = {name: row["state"] for name, row in rows(folder).items()}
    assert set(unfinished.values()) <= {"interrupted", "completed"} and "interrupted" in unfinished.values()
    first_s = status(folder).elapsed_s
    progress, folder = run(study(budget={"trials": 4}), tmp_path)
    assert progress.stage == "finished"
    before_s = progress.elapsed_s - (time.monotonic() - progress.started)
    assert first_s > 0 and before_s == pytest.approx(first_s, abs=0.2)
    facts = data_facts(folder)
    assert facts is not None and len(facts["classes"]) == 10
    assert {row["state"] for row in rows(folder).values()} <= {"completed", "pruned"}
    for name, row in rows(folder).items():
        assert [step for step, *_ in curve(folder, name)] == list(range(10, row["step"] + 1, 10))


def test_resuming_with_another_space_keeps_what_was_found(tmp_path: Path) -> None:
    first = study(search={"loss.weights.lb": [0.5, 1.0, 2.0]}, budget={"trials": 6}, scheduler="none")
    _, folder = run(first, tmp_path, body=bowl)
    before = rows(folder)
    wider = study(search={"loss.weights.lb": [0.5, 1.0, 2.0, 2.5]}, budget={"trials": 9}, scheduler="none")
    _, folder = run(wider, tmp_path, body=bowl)
    after = rows(folder)
    assert len(after) == 9 and all(after[name] == row for name, row in before.items())
    told = sampled(folder)
    assert len(told) == 8 and all(trial.state == TrialState.COMPLETE for trial in told.values())


def test_a_lost_journal_is_made_again_from_the_store(tmp_path: Path) -> None:
    config = study(search={"loss.weights.lb": {"float": [0.1, 3]}}, scheduler="none")
    _, folder = run(config, tmp_path, body=bowl)
    before = sampled(folder)
    folder.delete("optuna.journal")
    more = study(search={"loss.weights.lb": {"float": [0.1, 3]}}, scheduler="none", budget={"trials": 6})
    _, folder = run(more, tmp_path, body=bowl)
    after = sampled(folder)
    assert {name: (t.params, t.value) for name, t in before.items()}.items() <= {
        name: (t.params, t.value) for name, t in after.items()
    }.items()
    points: list[Any] = [tuple(trial.params.items()) for trial in after.values()]
    assert len(set(points)) == len(points) == 5  # suggestions differ from those already made


def test_a_study_lives_on_gcs(tmp_path: Path, gs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the sampler's history is, if the store is no folder
    _, folder = run(study(budget={"trials": 3}, training={"steps": 20}), gs.format("/results"))
    found = rows(folder)
    assert len(found) == 3 and {row["state"] for row in found.values()} <= {"completed", "pruned"}
    for name, row in found.items():
        assert folder.read(row["checkpoint"]) and curve(folder, name)[-1][0] == row["step"]
    assert folder.location.entries(hidden=True) == []


def test_a_study_lives_in_a_bucket_and_goes_on_there(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"confirm": {"configs": 1, "runs": 1}, "training": {"steps": 20}}
    _, folder = run(study(budget={"trials": 3}, **given), bucket)
    found = rows(folder)
    assert {row["state"] for row in found.values()} <= {"completed", "pruned"}
    assert all(folder.read(row["checkpoint"]) for row in found.values())
    run(study(budget={"trials": 4}, **given), bucket)
    assert {name: row for name, row in rows(folder).items() if name in found} == found
    assert sum(row["role"] == "search" for row in rows(folder).values()) == 4
