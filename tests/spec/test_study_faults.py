"""What a study file cannot say: every fault with its place, what was given and what is wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbe.errors import ConfigError
from cbe.spec import StudyConfig, read_config
from tests.spec.test_study_file import faults, study

FAULTY = """\
name: Not A Name
model: wrn-10-1
training: {stepz: 100}
search:
  ensemble.headz: [2, 3]
  training.seed: [1, 2]
  training.device: [cpu, cuda]
  method.threshold:
    float: [0.5,
            1.5]
  method.name: [fixmatch, freemach]
  loss.agreement: {choice: [0.4], whenn: {loss.target: hard}}
  loss.weights: [1, 2]
  loss.weights.lb: {float: [0, 1], log: true}
objective:
  - validation_error
  - {metric: maccs}
sampler: tpee
scheduler: {name: asha, grase: 0.1}
seeds: [1, 1]
storage: s3://key:hunter2@bucket/x
budgets: {trials: 3}
"""


def test_all_faults_of_a_study_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FAULTY)
    found = {fault.split(": ")[0].removeprefix(f"{path}:"): fault for fault in faults(path=path)}
    assert set(found) == {
        *("1 name", "3 training.stepz", "5 search.ensemble.headz", "6 search.training.seed"),
        *("7 search.training.device", "10 search.method.threshold.float.1", "11 search.method.name.choice.1"),
        *("12 search.loss.agreement.whenn", "13 search.loss.weights", "14 search.loss.weights.lb"),
        *("17 objective.1.metric", "18 sampler.name", "19 scheduler.grase", "20 seeds", "21 storage.store"),
        "22 budgets",
    }
    ends = {
        "3 training.stepz": "did you mean steps?",
        "5 search.ensemble.headz": "unknown key; did you mean ensemble.heads?",
        "6 search.training.seed": "list its values under seeds",
        "7 search.training.device": "not what it computes; set it for the whole study",
        "11 search.method.name.choice.1": "did you mean freematch?",
        "12 search.loss.agreement.whenn": "unknown key; did you mean when?",
        "13 search.loss.weights": "it is a section; name a key of it, as loss.weights.labeled",
        "17 objective.1.metric": "did you mean macs?",
        "18 sampler.name": "did you mean tpe?",
        "19 scheduler.grase": "unknown key; did you mean grace?",
        "22 budgets": "unknown key; did you mean budget?",
    }
    assert {key: found[key] for key in ends if not found[key].endswith(ends[key])} == {}
    assert "1.5: input should be less than or equal to 1" in found["10 search.method.threshold.float.1"]


def test_faults_between_sections_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nmodel: wrn-10-1\nsampler: grid\nscheduler: {grace: 500}\ntraining: {steps: 100}\nsearch:\n"
        "  ensemble.private_channels: {int: [64, 80]}\n  ensemble.momentum: {float: [0.1, 0.9]}\n"
        "seeds: [3, 4]\nconfirm: {seeds: [4, 5], label_splits: [0, 1]}\nresources: {workers: 3}\n"
    )
    assert [fault.removeprefix(f"{path}:").split(": ")[0] for fault in faults(path=path)] == [
        "8 search.ensemble.momentum",
        "7 search.ensemble.private_channels",
        "4 scheduler.grace",
        "10 confirm.seeds",
        "10 confirm.label_splits",
        "11 resources.workers",
    ]


def test_a_file_without_a_name_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("search: {}\n")
    assert faults(path=path) == [f"{path} name: is missing; add it"]


def test_a_password_is_refused_and_not_repeated() -> None:
    for setting in (
        "storage=s3://key:hunter2@bucket",
        "storage=gs://bucket/x?access_token=hunter2",
        "storage=abfs://box@account.dfs.core.windows.net/x?sv=2024&sig=hunter2",
        "storage=abfs://box@account.dfs.core.windows.net/x?client_secret=hunter2",
        "storage.optuna=postgresql://me:hunter2@host/db",
        "storage.optuna=mysql://host/db?password=hunter2",
    ):
        (fault,) = faults(setting)
        assert fault.endswith("a URL with a password in it; secrets belong in the environment")
        assert "hunter2" not in fault
    kept = study(storage={"store": "s3://bucket/a:b@c", "optuna": "postgresql://me@host/db"}).storage
    assert kept.optuna == "postgresql://me@host/db"


@pytest.mark.parametrize("name", ["", "A", ".a", "a..b", "a/b", "a b", "-a", "a" * 65, "é"])
def test_a_name_that_could_not_be_a_folder_is_refused(name: str) -> None:
    assert "without .." in faults(f"name={json.dumps(name)}")[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        # parameters
        (["search.training.lr={}"], "search.training.lr: a parameter is exactly one of {int: [low, high]}"),
        (["search.training.lr={int: [1, 2], float: [1, 2]}"], "exactly one of"),
        (["search.training.lr=3"], "search.training.lr: 3: a parameter is exactly one of {int"),
        (["search.training.lr=[]"], "no choice is given"),
        (["search.training.lr=[0.1, 1e-1]"], "search.training.lr.choice: a choice is given twice"),
        (["search.training.lr={choice: [0.1], log: true}"], "log and step belong to int and float"),
        (["search.training.lr={float: [0.2, 0.1]}"], "low must be below high, not 0.2 and 0.1"),
        (["search.training.lr={float: [1]}"], "search.training.lr.float.1: is missing"),
        (["search.training.lr={float: [0.1, .inf]}"], "search.training.lr.float.1: inf"),
        (["search.loss.weights.lv={float: [0, 1], log: true}"], "log needs a low above 0"),
        (["search.training.lr={float: [0.1, 0.2], log: true, step: 0.1}"], "exclude each other"),
        (["search.training.lr={float: [0.1, 0.8], step: 0.3}"], "the last one is 0.7"),
        (
            ["search.ensemble.heads={int: [2, 8], step: 0.5}"],
            "heads.step: 0.5: input should be a valid integer",
        ),
        (["search.ensemble.heads={float: [2, 8]}"], "ensemble.heads is a whole number; write int"),
        (["search.ensemble.heads={int: [0, 8]}"], "search.ensemble.heads.int.0: 0: input should be greater"),
        (["search.model.name=[wrn-10-1, wrn-11-1]"], "search.model.name.choice.1: 'wrn-11-1': a network is"),
        (["search.data.label_indices=[3]"], "search.data.label_indices.choice.0: 3: input should be"),
        (["search.heads=[3]"], "search.heads: unknown key; did you mean ensemble.heads?"),
        (["search.qqq=[3]"], "name a key of a training file with its section, as ensemble.heads"),
        (["search.data.label_split=[1]"], "list its values under label_splits"),
        ([".=3"], "--set .=3: not of the form key=value"),
        (["search=3"], "search: 3: input should be a valid dictionary"),
        # conditions
        (
            ["search.training.lr={choice: [0.1], when: {loss.tarket: hard}}"],
            "search.training.lr.when.loss.tarket: unknown key; did you mean loss.target?",
        ),
        (
            ["search.training.lr={choice: [0.1], when: {loss.target: hart}}"],
            "lr.when.loss.target.0: 'hart': input should be 'soft' or 'hard'; did you mean hard?",
        ),
        (
            [
                "search.training.lr={choice: [0.1], when: {training.ema: 0.9}}",
                "search.training.ema={choice: [0.9], when: {training.lr: 0.1}}",
            ],
            "these conditions form a circle",
        ),
        (["search.training.lr={choice: [0.1], when: {training.lr: 0.1}}"], "these conditions form a circle"),
        (
            ["search.training.lr={choice: [0.1], when: {loss.target: hard}}"],
            "search.training.lr: is never used: its condition holds at no point of the search",
        ),
        (["ensemble=single", "search.ensemble.heads={int: [2, 8]}"], "search.ensemble.heads: is never used"),
        (["method=freematch", "search.method.threshold=[0.9]"], "search.method.threshold: is never used"),
        # what can be built
        (
            ["search.ensemble.private_channels={int: [128, 200]}"],
            "search.ensemble.private_channels: no point of the search can be built: 128 does not leave",
        ),
        (["ensemble.private_channels=128"], "ensemble.private_channels: 128 does not leave a shared channel"),
        (["ensemble=single", "loss.weights.lb=1"], "loss.weights.lb: ensemble single has no private"),
        (["method.name=freematch", "method.threshold=0.9"], "0.9: method freematch takes no threshold"),
        (["method.fairness=0.1"], "0.1: method fixmatch takes no fairness; leave it out, or use method free"),
        (["ensemble=single", "loss.target=hard", "search={}"], "ensemble single takes no loss.target"),
        # objectives
        (
            ["objective=macs"],
            "trials are compared by the first while they train; begin with validation_error",
        ),
        (["objective=[validation_error, validation_error]"], "a metric is given twice"),
        (["objective=test_error"], "says nothing about new images; use validation_error, or say allow_test"),
        (["objective=[]"], "objective: []"),
        (["objective={metric: macs, direktion: minimize}"], "objective.direktion: unknown key; did you mean"),
        # samplers and schedulers
        (["sampler=cmaes", "objective=[validation_error, macs]"], "cmaes pursues one objective, not 2"),
        (
            ["sampler=grid"],
            "search.method.threshold: a float without step has infinitely many values, too many for a grid",
        ),
        (
            ["sampler=grid", "search={training.steps: {int: [1001, 6000]}, ensemble.heads: {int: [2, 55]}}"],
            "search: a grid of 270,000 points; at most 100,000 can be run; search less, or use random",
        ),
        (
            ["sampler=grid", "search={training.lr: {float: [1.0, 901.0], step: 0.000000001}}"],
            "900,000,000,001 points",
        ),
        (["scheduler.grace=1.5"], "scheduler.grace: 1.5"),
        (["scheduler.grace=0"], "scheduler.grace: 0"),
        (["scheduler.reduction=1"], "scheduler.reduction: 1"),
        (
            ["scheduler=pbt", "search.ensemble.heads={int: [2, 8]}"],
            "which ensemble.heads does not allow",
        ),
        # seeds
        (["seeds=[]"], "seeds: []"),
        (["label_splits=[2, 2]"], "label_splits: [2, 2]: one is given twice"),
        (["seeds=[-1]"], "seeds.0: -1"),
        (["confirm.seeds=[1, 2]", "confirm.label_splits=[1]"], "label_splits lists 1 for 2 runs"),
        (["confirm.seeds=[1, 2]", "confirm.runs=3"], "seeds lists 2 for 3 runs"),
        (["confirm.seeds=[1, 1]", "confirm.label_splits=[1, 1]"], "the run would be the same"),
        (
            ["confirm.seeds=[0, 1]"],
            "confirm.seeds: the search has seen 0, 1; what was chosen on it looks better",
        ),
        (["label_splits=[7]", "confirm.label_splits=[8, 7]"], "confirm.label_splits: the search has seen 7"),
        # cost
        (["budget.trials=0"], "budget.trials: 0"),
        (["budget.usd=0"], "budget.usd: 0"),
        (["budget.usd=5"], "budget.usd: 5: no cost is counted while resources.usd_per_hour is 0"),
        (["budget.gpu_hours=5", "resources.gpus=0"], "budget.gpu_hours: 5: no trial uses a GPU"),
        (["resources.gpus=1.5"], "a worker shares one card (below 1) or has whole ones"),
        (["resources.cpus=0"], "resources.cpus: 0"),
        (["resources.usd_per_hour=-1"], "resources.usd_per_hour: -1"),
        (["resources.workers=3"], "3 do not divide training.batch_size 32"),
        (["resources.workers=2", "search.training.batch_size=[32, 33]"], "training.batch_size 33"),
        (["resources.workers=2", "search.training.batch_size={int: [8, 32]}"], "training.batch_size 9"),
        # storage
        (
            ["storage=ftp://bucket"],
            "a store is a local path, s3://bucket/prefix, gs://bucket/prefix or abfs://",
        ),
        (["storage=s3://"], "a store is a local path, s3://bucket/prefix"),
        (["storage.shared=often"], "storage.shared: 'often'"),
        (["storage.stor=x"], "storage.stor: unknown key; did you mean store?"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_wanted(settings: list[str], message: str) -> None:
    assert message in "\n".join(faults(*settings))


@given(st.text(max_size=12), st.text(max_size=20))
def test_no_search_whatever_ends_in_anything_but_a_study_or_a_clear_error(key: str, value: str) -> None:
    try:
        read_config(StudyConfig, settings=["name=a", f"search.{key}={value}"])
    except ConfigError as error:
        assert all(fault.where and fault.problem for fault in error.faults)
