"""Study files: what they mean, and every fault at once with its place, value and a next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cbe.cli import check
from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig, read_config
from cbe.spec.files import Faults
from cbe.spec.identity import column_types, columns, config_id
from cbe.spec.registry import ENSEMBLES, METHODS, load
from cbe.spec.search import (
    FIXED,
    KEYS,
    MUTABLE,
    THRESHOLDED,
    Parameter,
    applicable,
    applies,
    default_search,
    grid,
    order,
    values_of,
)
from cbe.spec.settings import Scheduler
from cbe.spec.train import WITH_HEADS, Training
from cbe.ssl import resolve

STUDIES = sorted((Path(__file__).parents[1] / "studies").glob("*.yaml"))


def study(**sections: Any) -> StudyConfig:
    return StudyConfig.model_validate({"name": "a", **sections})


def faults(*settings: str, path: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_config(StudyConfig, path, ["name=a", *settings] if path is None else settings)
    return [str(fault) for fault in caught.value.faults]


def parameter(plain: Any) -> Parameter:
    return Parameter.model_validate(plain)


# Faults


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
        (["search.training.lr=3"], "search.training.lr: 3: a parameter is {int"),
        (["search.training.lr=[]"], "no choice is given"),
        (["search.training.lr=[0.1, 1e-1]"], "search.training.lr.choice: a choice is given twice"),
        (["search.training.lr={choice: [0.1], log: true}"], "log and step belong to int and float"),
        (["search.training.lr={float: [0.2, 0.1]}"], "low must be below high, not 0.2 and 0.1"),
        (["search.training.lr={float: [1]}"], "search.training.lr.float.1: is missing"),
        (["search.training.lr={float: [0.1, .inf]}"], "search.training.lr.float.1: inf"),
        (["search.loss.weights.lv={float: [0, 1], log: true}"], "log needs a low above 0"),
        (["search.training.lr={float: [0.1, 0.2], log: true, step: 0.1}"], "exclude each other"),
        (["search.training.lr={float: [0.1, 0.8], step: 0.3}"], "the last one is 0.7"),
        (["search.ensemble.heads={int: [2, 8], step: 0.5}"], "step of an int is a whole number"),
        (["search.ensemble.heads={float: [2, 8]}"], "ensemble.heads is a whole number; write int"),
        (["search.ensemble.heads={int: [0, 8]}"], "search.ensemble.heads.int.0: 0: input should be greater"),
        (["search.model.name=[wrn-10-1, wrn-11-1]"], "search.model.name.choice.1: 'wrn-11-1': a network is"),
        (["search.data.label_indices=[3]"], "search.data.label_indices.choice.0: 3: input should be"),
        (["search.heads=[3]"], "search.heads: unknown key; did you mean ensemble.heads?"),
        (["search.qqq=[3]"], "name a key of a training file with its section, as ensemble.heads"),
        (["search.data.split_seed=[1]"], "list its values under label_splits"),
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
            "each exists only by leave of another",
        ),
        (["search.training.lr={choice: [0.1], when: {training.lr: 0.1}}"], "by leave of another"),
        (
            ["search.training.lr={choice: [0.1], when: {loss.target: hard}}"],
            "search.training.lr: exists at no point of the search",
        ),
        (["ensemble=single", "search.ensemble.heads={int: [2, 8]}"], "search.ensemble.heads: exists at no"),
        (["method=freematch", "search.method.threshold=[0.9]"], "search.method.threshold: exists at no"),
        # what can be built
        (
            ["search.ensemble.private_channels={int: [128, 200]}"],
            "search.ensemble.private_channels: no point of the search can be built: 128 does not leave",
        ),
        (["ensemble.private_channels=128"], "ensemble.private_channels: 128 does not leave a shared channel"),
        (["ensemble=single", "loss.weights.lb=1"], "loss.weights.lb: ensemble single has no private"),
        (["method.name=freematch", "method.threshold=0.9"], "method.threshold: freematch has no threshold"),
        (["method.fairness=0.1"], "method.fairness: fixmatch has no fairness to set; leave it out"),
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
        (["sampler=grid"], "search.method.threshold: a grid has no end of values of a float without step"),
        (["scheduler.grace=1.5"], "scheduler.grace: 1.5"),
        (["scheduler.grace=0"], "scheduler.grace: 0"),
        (["scheduler.reduction=1"], "scheduler.reduction: 1"),
        (["scheduler=pbt", "search.ensemble.heads={int: [2, 8]}"], "nothing that is searched can be changed"),
        # seeds
        (["seeds=[]"], "seeds: []"),
        (["label_splits=[2, 2]"], "label_splits: [2, 2]: one is given twice"),
        (["seeds=[-1]"], "seeds.0: -1"),
        (["confirm.seeds=[1, 2]", "confirm.label_splits=[1]"], "label_splits lists 1 for 2 runs"),
        (["confirm.seeds=[1, 2]", "confirm.runs=3"], "seeds lists 2 for 3 runs"),
        (["confirm.seeds=[1, 1]", "confirm.label_splits=[1, 1]"], "the run would be the same"),
        (
            ["confirm.seeds=[0, 1]"],
            "confirm.seeds: the search has seen 0; what was chosen on it looks better",
        ),
        (["label_splits=[7]", "confirm.label_splits=[8, 7]"], "confirm.label_splits: the search has seen 7"),
        # cost
        (["budget.trials=0"], "budget.trials: 0"),
        (["budget.usd=0"], "budget.usd: 0"),
        (["resources.gpus=1.5"], "a worker shares one card (below 1) or has whole ones"),
        (["resources.cpus=0"], "resources.cpus: 0"),
        (["resources.usd_per_hour=-1"], "resources.usd_per_hour: -1"),
        (["resources.workers=3"], "3 do not divide training.batch_size 32"),
        (["resources.workers=2", "search.training.batch_size=[32, 33]"], "training.batch_size 33"),
        (["resources.workers=2", "search.training.batch_size={int: [8, 32]}"], "training.batch_size 9"),
        # storage
        (["storage=gs://bucket"], "a store is a local path or s3://bucket/prefix"),
        (["storage=s3://"], "a store is a local path or s3://bucket/prefix"),
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


# Reading


def test_short_forms_stand_for_their_sections() -> None:
    short = study(
        objective="validation_loss",
        sampler="gp",
        scheduler="none",
        storage="s3://b/p",
        search={"training.lr": [1]},
    )
    long = study(
        objective=[{"metric": "validation_loss", "direction": "minimize"}],
        sampler={"name": "gp", "seed": 0},
        scheduler={"name": "none"},
        storage={"store": "s3://b/p"},
        search={"training.lr": {"choice": [1]}},
    )
    assert short == long
    assert study(objective={"metric": "validation_error", "direction": "maximize"}).objectives[0].direction


def test_settings_reach_searched_keys_and_short_sections(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nsampler: gp\nsearch: {ensemble.heads: {int: [2, 8]}}\n")
    changed = read_config(
        StudyConfig, path, ["sampler.seed=7", "search.ensemble.heads=[3, 5]", "search.loss.weights.lb=[0, 1]"]
    )
    assert (changed.sampler.name, changed.sampler.seed) == ("gp", 7)
    assert changed.search["ensemble.heads"].choice == (3, 5)
    assert changed.search["loss.weights.lb"].choice == (0.0, 1.0)


def test_numbers_that_yaml_takes_for_text_are_numbers_in_the_search() -> None:
    made = study(
        search={
            "training.lr": ["1e-3", 0.1],
            "training.ema": {"choice": [0.9], "when": {"training.lr": "1e-3"}},
            "training.weight_decay": {"float": ["1e-4", "1e-2"], "log": True},
        }
    )
    assert made.search["training.lr"].choice == (0.001, 0.1)
    assert made.search["training.ema"].when == {"training.lr": (0.001,)}
    assert made.search["training.weight_decay"].float_ == (0.0001, 0.01)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"search": {}},
        {"search": "default", "method": "freematch", "ensemble": "single"},
        {"objective": ["validation_error", "macs"], "confirm": {"seeds": [5, 6, 7]}, "budget": {"usd": 3}},
        {"search": {"training.lr": {"float": [0.1, 0.3], "step": 0.1, "when": {"ensemble.kind": "channel"}}}},
    ],
)
def test_what_is_written_reads_back_equal(sections: dict[str, Any], tmp_path: Path) -> None:
    made = study(**sections)
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(made.to_plain()))
    assert read_config(StudyConfig, path) == made


def test_omitted_and_default_search_are_the_default_and_an_empty_one_is_empty() -> None:
    assert study().search == study(search="default").search == default_search(TrainConfig())
    assert study(search={}).search == {} and list(grid(study(search={}))) == [{}]


# Parameters


def test_a_parameter_knows_its_values_and_what_it_contains() -> None:
    heads = parameter({"int": [2, 8], "step": 3})
    assert heads.values() == (2, 5, 8)
    assert [heads.contains(value) for value in (2, 5, 8, 3, 11, 5.0, 5.5, True, "5", None)] == [
        *(True, True, True, False, False, True, False, False, False, False),
    ]
    tenths = parameter({"float": [0.1, 0.7], "step": 0.2})
    assert tenths.values() == (0.1, 0.3, 0.5, 0.7)
    assert all(tenths.contains(value) for value in tenths.values()) and not tenths.contains(0.2)
    reals = parameter({"float": [0.1, 10], "log": True})
    assert reals.contains(0.1) and reals.contains(3) and not reals.contains(10.1)
    with pytest.raises(ValueError, match="no end of values"):
        reals.values()
    flags = parameter([True, False])
    assert flags.contains(True) and not flags.contains(1)


@given(
    st.integers(-50, 50).flatmap(lambda low: st.tuples(st.just(low), st.integers(low + 1, low + 60))),
    st.integers(1, 7),
)
def test_every_value_of_a_range_is_contained_and_the_next_is_not(bounds: tuple[int, int], step: int) -> None:
    low, high = bounds[0], bounds[0] + (bounds[1] - bounds[0]) * step
    for kind, scale in (("int", 1), ("float", 0.01)):
        made = parameter(
            {kind: [round(low * scale, 2), round(high * scale, 2)], "step": round(step * scale, 2)}
        )
        values = made.values()
        assert len(values) == bounds[1] - bounds[0] + 1 and all(made.contains(value) for value in values)
        assert not made.contains(values[-1] + step * scale)


# Conditions


def test_methods_with_a_threshold_are_those_of_the_registry() -> None:
    assert {name for name in METHODS if load(METHODS, name).threshold is not None} == THRESHOLDED
    assert [name for name in METHODS if load(METHODS, name).extra is not None] == ["freematch"]


@pytest.mark.parametrize("kind", ENSEMBLES)
@pytest.mark.parametrize("method", METHODS)
def test_a_key_applies_where_the_config_has_a_use_for_it(method: str, kind: str) -> None:
    values = {"ensemble.kind": kind, "ensemble.heads": None, "method.name": method, "loss.target": "soft"}
    applying = {key for key in KEYS if applies(key, values)}
    several, private = kind in WITH_HEADS, kind == "channel"
    assert ("ensemble.heads" in applying) == several
    assert ("loss.target" in applying) == ("loss.agreement" in applying) == several
    for key in ("ensemble.private_channels", "loss.weights.lb", "loss.lb_correlation", "loss.lb_pairs"):
        assert (key in applying) == private
        assert not applies(key, {**values, "ensemble.heads": 1})
    assert ("ensemble.momentum" in applying) == (kind == "temporal")
    assert ("method.threshold" in applying) == (method in THRESHOLDED)
    assert ("method.fairness" in applying) == (method == "freematch")
    assert {"loss.weights.lv", "loss.weights.unlabeled", "training.lr", "method.ramp"} <= applying


def test_what_decides_comes_before_what_depends_on_it() -> None:
    search = {
        "loss.weights.lb": parameter([0, 1]),
        "loss.agreement": parameter({"choice": [0.4], "when": {"loss.target": "hard"}}),
        "method.threshold": parameter([0.9]),
        "loss.target": parameter(["soft", "hard"]),
        "ensemble.heads": parameter({"int": [2, 3], "when": {"training.lr": 0.1}}),
        "method.name": parameter(["uda"]),
        "ensemble.kind": parameter(["channel"]),
        "training.lr": parameter([0.1]),
    }
    place = {key: index for index, key in enumerate(order(search))}
    assert place.keys() == search.keys()
    for first, second in (
        ("ensemble.kind", "ensemble.heads"),
        ("training.lr", "ensemble.heads"),
        ("ensemble.heads", "loss.weights.lb"),
        ("ensemble.heads", "loss.target"),
        ("loss.target", "loss.agreement"),
        ("method.name", "method.threshold"),
    ):
        assert place[first] < place[second]
    with pytest.raises(Faults, match="by leave of another"):
        order(
            {
                "a": parameter({"choice": [1], "when": {"b": 1}}),
                "b": parameter({"choice": [1], "when": {"a": 1}}),
            }
        )


def test_a_condition_may_name_a_key_that_is_not_searched() -> None:
    search = {
        "training.ema": {"choice": [0.9, 0.99], "when": {"method.name": ["uda", "fixmatch"]}},
        "training.lr": [0.1],
    }
    made = study(search=search)
    assert applicable("training.ema", made.search["training.ema"], made.values({}))
    assert not applicable(
        "training.ema", made.search["training.ema"], made.values({"method.name": "freematch"})
    )
    assert len(list(grid(made))) == 2


def test_a_condition_on_the_middle_of_a_range_can_hold() -> None:
    made = study(
        search={
            "ensemble.heads": {"int": [2, 8]},
            "training.lr": {"choice": [0.1, 0.2], "when": {"ensemble.heads": 5}},
        }
    )
    assert len(list(grid(made))) == 8


def test_population_based_training_may_change_weights_but_no_network_and_no_batch() -> None:
    assert set(KEYS) == MUTABLE | FIXED and not MUTABLE & FIXED
    assert {
        "loss.weights.lb",
        "method.threshold",
        "loss.agreement",
        "training.lr",
        "training.weight_decay",
    } <= MUTABLE
    assert {"ensemble.heads", "model.name", "method.name", "data.labels", "training.steps"} <= FIXED
    assert (
        study(scheduler="pbt", search={"ensemble.heads": [2, 3], "training.lr": [0.1]}).scheduler.name
        == "pbt"
    )


# Points


@st.composite
def points(draw: st.DrawFn, made: StudyConfig) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for key in order(made.search):
        each = made.search[key]
        if not applicable(key, each, made.values(point)):
            continue
        if each.choice is not None:
            point[key] = draw(st.sampled_from(each.choice))
        elif each.int_ is not None:
            point[key] = draw(st.integers(*each.int_))
        else:
            assert each.float_ is not None
            point[key] = draw(st.floats(*each.float_))
        assert each.contains(point[key])
    return point


@given(
    st.sampled_from(list(METHODS)),
    st.sampled_from(list(ENSEMBLES)),
    st.sampled_from(["wrn-10-1", "wrn-28-2", "wrn-28-8"]),
    st.data(),
)
def test_any_point_of_the_default_search_builds_and_resolves(
    method: str, kind: str, model: str, data: st.DataObject
) -> None:
    made = study(method=method, ensemble=kind, model=model)
    point = data.draw(points(made))
    config = resolve(made.train_config(point, 3, 4))
    values = values_of(config)
    assert {key: values[key] for key in point} == point
    assert (config.training.seed, config.data.split_seed) == (3, 4)
    assert ("loss.agreement" in point) == (point.get("loss.target") == "hard")


def test_the_default_search_is_as_wide_as_the_network() -> None:
    default = default_search(TrainConfig())
    assert default["ensemble.heads"].int_ == (2, 8) and default["ensemble.private_channels"].int_ == (3, 32)
    assert default["method.threshold"].float_ == (0.7, 0.99)
    assert default["loss.agreement"].choice == (0.4, 0.6, 0.8, 1.0)
    weights = [default[f"loss.weights.{name}"] for name in ("labeled", "unlabeled", "lb", "lv")]
    assert {(weight.float_, weight.log) for weight in weights} == {((0.1, 10), True)}
    assert default["loss.target"].choice == ("soft", "hard")
    assert default["loss.lb_correlation"].choice == ("abs", "square", "signed")
    single = default_search(TrainConfig.model_validate({"ensemble": "single", "method": "freematch"}))
    assert set(single) == {"loss.weights.labeled", "loss.weights.unlabeled", "loss.weights.lv"}


EVERYTHING = {
    "ensemble.kind": list(ENSEMBLES),
    "method.name": list(METHODS),
    "ensemble.heads": {"int": [1, 2]},
    "ensemble.private_channels": [4, 64],
    "method.threshold": [0.8, 0.9],
    "method.fairness": [0.0, 0.1],
    "loss.target": ["soft", "hard"],
    "loss.agreement": {"choice": [0.4, 0.8], "when": {"loss.target": "hard"}},
    "loss.weights.lb": [0, 1],
    "ensemble.momentum": [0.5, 0.6],
}


@given(st.sets(st.sampled_from(sorted(EVERYTHING)), min_size=1))
def test_points_of_a_grid_are_distinct_and_hold_what_applies(keys: set[str]) -> None:
    wanted = (
        keys | ({"loss.target"} if "loss.agreement" in keys else set()) | {"ensemble.kind", "method.name"}
    )
    made = study(search={key: EVERYTHING[key] for key in EVERYTHING if key in wanted}, sampler="grid")
    found = list(grid(made))
    assert len({json.dumps(point, sort_keys=True) for point in found}) == len(found)
    assert found == list(grid(made))
    for point in found[:: max(1, len(found) // 50)]:
        values = made.values(point)
        assert point.keys() == {key for key, each in made.search.items() if applicable(key, each, values)}
        assert all(made.search[key].contains(value) for key, value in point.items())
    assert made.trials == len(found) + 2


def test_a_grid_has_every_point_once_in_the_order_of_the_file() -> None:
    made = study(
        sampler="grid",
        search={"ensemble.kind": ["single", "channel"], "ensemble.heads": [2, 3], "loss.weights.lv": [0, 1]},
    )
    assert [tuple(point.get(key) for key in made.search) for point in grid(made)] == [
        *(("single", None, 0), ("single", None, 1)),
        *(("channel", 2, 0), ("channel", 3, 0), ("channel", 2, 1), ("channel", 3, 1)),
    ]


def test_a_search_of_which_some_points_cannot_be_built_is_allowed_and_those_are_refused_later() -> None:
    made = study(model="wrn-10-1", search={"ensemble.private_channels": [4, 64]})
    assert made.train_config({"ensemble.private_channels": 4}, 0, 0).private_channels == 4
    with pytest.raises(ConfigError, match=r"^ensemble\.private_channels: 64 does not leave a shared channel"):
        made.train_config({"ensemble.private_channels": 64}, 0, 0)
    # Each of the two fails with one network, and goes with the other.
    study(search={"ensemble.private_channels": [100, 64], "model.name": ["wrn-10-1", "wrn-28-2"]})


def test_a_point_with_a_key_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.lrr: unknown key; did you mean lr"):
        study().train_config({"training.lrr": 1}, 0, 0)


def test_another_ensemble_or_method_leaves_the_settings_of_the_old_one_behind() -> None:
    made = study(
        method={"name": "fixmatch", "threshold": 0.7, "ramp": 0.1},
        ensemble={"kind": "channel", "heads": 3, "private_channels": 5},
        loss={"weights": {"lb": 2, "lv": 3, "unlabeled": 4}},
        search={"ensemble.kind": list(ENSEMBLES), "method.name": list(METHODS)},
    )
    same = made.train_config({"ensemble.kind": "channel", "method.name": "fixmatch"}, 0, 0)
    assert (same.ensemble, same.method, same.loss) == (made.ensemble, made.method, made.loss)
    single = made.train_config({"ensemble.kind": "single", "method.name": "freematch"}, 0, 0)
    assert (single.heads, single.ensemble.private_channels) == (1, None)
    assert (single.method.threshold, single.method.ramp) == (None, None)
    assert (single.loss.weights.lb, single.loss.weights.lv, single.loss.weights.unlabeled) == (None, None, 4)
    heads = made.train_config({"ensemble.kind": "multihead"}, 0, 0)
    assert (heads.heads, heads.ensemble.private_channels, heads.method.threshold) == (3, None, 0.7)
    given = made.train_config({"ensemble.kind": "model", "ensemble.heads": 2, "loss.weights.lv": 1.0}, 0, 0)
    assert (given.heads, given.loss.weights.lv) == (2, 1)


def test_a_single_head_of_the_base_does_not_make_another_ensemble_single() -> None:
    made = study(
        ensemble={"kind": "single", "heads": 1},
        search={"ensemble.kind": ["single", "channel"], "loss.weights.lb": [0, 1]},
    )
    assert made.train_config({"ensemble.kind": "channel"}, 0, 0).heads == 5
    assert list(grid(made)) == [
        {"ensemble.kind": "single"},
        {"ensemble.kind": "channel", "loss.weights.lb": 0},
        {"ensemble.kind": "channel", "loss.weights.lb": 1},
    ]


def test_the_papers_config_and_the_one_without_an_ensemble_keep_all_but_ensemble_and_loss() -> None:
    made = study(
        model="wrn-10-1",
        method={"name": "uda", "threshold": 0.6},
        ensemble={"kind": "channel", "heads": 3},
        loss={"target": "hard", "weights": {"lb": 9}},
        training={"steps": 7},
    )
    paper, base = made.paper_config(5, 6), made.base_config(5, 6)
    assert (paper.ensemble.kind, paper.heads, paper.private_channels) == ("channel", 5, 6)
    assert (base.ensemble.kind, base.heads) == ("single", 1)
    for config in (paper, base):
        assert config.loss == TrainConfig().loss
        assert (config.method, config.model, config.training.steps) == (made.method, made.model, 7)
        assert (config.training.seed, config.data.split_seed) == (5, 6)


# Seeds, steps


def test_every_config_runs_on_each_pair_of_seed_and_split() -> None:
    made = study(seeds=[3, 1], label_splits=[0, 5])
    assert made.pairs == ((3, 0), (3, 5), (1, 0), (1, 5))
    assert made.confirm_pairs == ((4, 6), (5, 7), (6, 8), (7, 9), (8, 10))


def test_confirming_runs_take_the_listed_seeds_or_numbers_nobody_has_seen() -> None:
    assert study(confirm={"seeds": [7, 9], "label_splits": [4, 3]}).confirm_pairs == ((7, 4), (9, 3))
    made = study(confirm={"label_splits": [4, 3]})
    assert (made.confirm.runs, made.confirm_pairs) == (2, ((1, 4), (2, 3)))
    assert study(confirm={"runs": 0}).confirm_pairs == ()


@pytest.mark.parametrize(
    ("grace", "steps", "every", "expected"),
    [(0.1, 1000, 50, 100), (0.1, 1000, 30, 120), (0.07, 100, 1, 7), (1, 1000, 50, 50), (101, 1000, 50, 150)],
)
def test_grace_is_whole_evaluations(grace: float, steps: int, every: int, expected: int) -> None:
    assert Scheduler(grace=grace).grace_steps(Training(steps=steps, eval_every=every)) == expected
    assert Scheduler(grace=0.99).grace_steps(Training(steps=100, eval_every=70)) == 100


# Identity


def test_a_config_has_one_id_on_every_seed_split_and_machine() -> None:
    made = study()
    one = resolve(made.train_config({}, 0, 0))
    other = resolve(
        made.train_config({"training.device": "cpu", "data.root": "x", "training.log_every": 3}, 7, 8)
    )
    assert config_id(one) == config_id(other) and len(config_id(one)) == 12
    assert int(config_id(one), 16) >= 0


def test_any_other_value_makes_another_id() -> None:
    made = study()
    changes: list[dict[str, Any]] = [
        {"ensemble.heads": 4},
        {"loss.weights.lb": 0.5},
        {"training.lr": 0.031},
        {"data.labels": 41},
        {"method.name": "uda"},
        {"model.leak": 0.2},
    ]
    ids = {config_id(resolve(made.train_config(change, 0, 0))) for change in [{}, *changes]}
    assert len(ids) == len(changes) + 1


def test_columns_are_typed_and_empty_where_a_key_means_nothing() -> None:
    types = column_types()
    assert {name: types[name] for name in ("data_labels", "data_validation", "data_size", "data_flip")} == {
        "data_labels": "string",
        "data_validation": "float64",
        "data_size": "int64",
        "data_flip": "bool",
    }
    assert types["loss_weights_lb"] == "float64" and types["loss_labeled_views"] == "int64"
    assert not types.keys() & {"data_label_indices", "training_seed", "data_split_seed"}
    channel = columns(resolve(TrainConfig.model_validate({"data": {"labels": "all", "validation": 200}})))
    assert list(channel) == list(types)
    assert (channel["data_labels"], channel["data_validation"]) == ("all", 200.0)
    assert (channel["ensemble_heads"], channel["ensemble_private_channels"]) == (5, 13)
    assert (channel["ensemble_momentum"], channel["method_fairness"]) == (None, None)
    single = columns(resolve(TrainConfig.model_validate({"ensemble": "single", "method": "freematch"})))
    assert [single[name] for name in ("ensemble_heads", "loss_target", "loss_weights_lb")] == [None] * 3
    assert (single["method_threshold"], single["method_fairness"]) == (None, 0.001)


@pytest.mark.parametrize("kind", ENSEMBLES)
def test_every_column_holds_its_type(kind: str) -> None:
    python = {"int64": int, "float64": float, "string": str, "bool": bool}
    types = column_types()
    for name, value in columns(resolve(TrainConfig.model_validate({"ensemble": kind}))).items():
        assert value is None or type(value) is python[types[name]], name


# Checking files


def test_checking_tells_what_good_files_ask_for_and_the_faults_of_all_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "study.yaml": "name: mine\nbudget: {trials: 12}\n",
        "train.yaml": "method: uda\n",
        "bad.yaml": "name: b\nsampler: tp\n",
        "worse.yaml": "training: {steps: 0}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in (*texts, "missing.yaml")]
    with pytest.raises(ConfigError) as caught:
        check.command(files, ["training.lr=0.1"])
    assert capsys.readouterr().out.splitlines() == [
        f"{files[0]}: study mine: 10 parameters searched, 12 trials + 25 to confirm, "
        "sampler tpe, scheduler asha",
        f"{files[1]}: training: uda, channel, wrn-28-2, 204,800 steps",
    ]
    told = [str(fault) for fault in caught.value.faults]
    assert [fault.split(": ")[0] for fault in told] == [
        f"{files[2]}:2 sampler.name",
        f"{files[3]}:1 training.steps",
        str(files[4]),
    ]
    assert "no such file" in told[2]


def test_checking_for_a_program_gives_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: mine\nsampler: grid\nscheduler: none\nsearch: {ensemble.heads: {int: [2, 4]}}\n")
    check.command([path], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["name"], found["parameters"], found["trials"]) == ("study", "mine", 1, 5)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_of_the_repository_passes_and_says_what_it_asks(path: Path) -> None:
    found = check.describe(path)
    assert found["kind"] == ("training" if path.stem.startswith("train-") else "study")
    assert found.get("name", path.stem) == path.stem
    header = [
        line.split(":")[0] for line in path.read_text().splitlines() if line.startswith("# ") and ":" in line
    ]
    assert [word for word in header if word in ("# Asks", "# Command", "# Cost", "# Result")] == [
        *("# Asks", "# Command", "# Cost", "# Result"),
    ]
