"""What a study searches: parameters, the conditions under which they exist, and the points they span."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cbe.errors import ConfigError
from cbe.spec import Parameter, StudyConfig, TrainConfig, read_config
from cbe.spec.conditions import applies
from cbe.spec.ensembles import ENSEMBLES, WITH_HEADS
from cbe.spec.faults import Faults
from cbe.spec.methods import METHODS
from cbe.spec.registry import load
from cbe.spec.search import (
    FIXED,
    KEYS,
    MUTABLE,
    applicable,
    default_search,
    grid,
    order,
    values_of,
)
from cbe.spec.search_rules import MOST_CORNERS
from cbe.ssl import resolve


def study(**sections: Any) -> StudyConfig:
    return StudyConfig.model_validate({"name": "a", **sections})


def parameter(plain: Any) -> Parameter:
    return Parameter.model_validate(plain)


def test_a_parameter_knows_its_values_and_what_it_contains() -> None:
    heads = parameter({"int": [2, 8], "step": 3})
    assert tuple(heads.values()) == (2, 5, 8)
    assert [heads.contains(value) for value in (2, 5, 8, 3, 11, 5.0, 5.5, True, "5", None)] == [
        *(True, True, True, False, False, True, False, False, False, False),
    ]
    tenths = parameter({"float": [0.1, 0.7], "step": 0.2})
    assert tuple(tenths.values()) == (0.1, 0.3, 0.5, 0.7)
    assert all(tenths.contains(value) for value in tenths.values()) and not tenths.contains(0.2)
    reals = parameter({"float": [0.1, 10], "log": True})
    assert reals.contains(0.1) and reals.contains(3) and not reals.contains(10.1)
    with pytest.raises(ValueError, match="infinitely many values"):
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
        values = tuple(made.values())
        assert len(values) == bounds[1] - bounds[0] + 1 and all(made.contains(value) for value in values)
        assert not made.contains(values[-1] + step * scale)


def test_methods_take_what_they_have_a_value_of() -> None:
    for name, entry in METHODS.items():
        method = load(METHODS, name)
        assert ("method.threshold" in entry.takes) == (method.threshold is not None)
        assert ("method.fairness" in entry.takes) == (method.extra is not None)
        assert ("method.ramp" in entry.takes) == (method.student is not None)
    assert {key for entry in (*METHODS.values(), *ENSEMBLES.values()) for key in entry.takes} <= KEYS.keys()


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
    assert ("method.threshold" in applying) == ("method.threshold" in METHODS[method].takes)
    assert ("method.fairness" in applying) == (method == "freematch")
    assert ("method.momentum" in applying) == (method in ("freematch", "softmatch"))
    assert ("loss.weights.unlabeled" in applying) == ("method.ramp" in applying) == (method != "supervised")
    assert {"loss.weights.lv", "training.lr"} <= applying


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
    with pytest.raises(Faults, match="these conditions form a circle"):
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
    assert study(scheduler="pbt", search={"training.lr": [0.1]}).scheduler.name == "pbt"


@st.composite
def points(draw: st.DrawFn, made: StudyConfig) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for key in order(made.search):
        each = made.search[key]
        if not applicable(key, each, made.values(point)):
            continue
        if each.scale == "category":
            point[key] = draw(st.sampled_from(each.listed))
        else:
            point[key] = draw((st.integers if each.kind == "int" else st.floats)(*each.listed))
        assert each.contains(point[key])
    return point


@settings(deadline=None)
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
    assert (config.training.seed, config.data.label_split) == (3, 4)
    assert ("loss.agreement" in point) == (point.get("loss.target") == "hard")


def test_the_default_prior_is_the_papers_config() -> None:
    made = study(method="fixmatch", ensemble="channel", model="wrn-28-2")
    paper = values_of(resolve(made.paper_config(0, 0)))
    assert {key: p.prior.at for key, p in made.search.items() if p.prior} == {
        key: paper[key] for key in made.search
    }


def test_the_default_search_is_as_wide_as_the_network() -> None:
    default = default_search(TrainConfig())
    assert default["ensemble.heads"].listed == (2, 8) and default["ensemble.private_channels"].listed == (
        3,
        32,
    )
    assert default["method.threshold"].listed == (0.7, 0.99)
    assert default["loss.agreement"].listed == (0.4, 0.6, 0.8, 1.0)
    assert default["loss.weights.unlabeled"].listed == (0.25, 4)
    assert default["loss.weights.lb"].listed == default["loss.weights.lv"].listed == (0.1, 4)
    assert (
        "loss.weights.labeled" not in default
    )  # the scale of all weights nearly duplicates the learning rate
    assert default["loss.target"].listed == ("soft", "hard")
    assert default["loss.lb_correlation"].listed == ("abs", "square", "signed")
    assert default_search(TrainConfig.model_validate({"ensemble": {"heads": 1}})) == default
    single = default_search(TrainConfig.model_validate({"ensemble": "single", "method": "freematch"}))
    assert set(single) == {"loss.weights.unlabeled", "loss.weights.lv"}


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


@settings(deadline=None)
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


def test_the_one_network_that_fits_is_found_among_many_other_dimensions() -> None:
    numbers = [key for key in KEYS if key in MUTABLE and KEYS[key] is not bool]
    reals = [key for key in numbers if key.startswith(("training.", "loss.weights."))]
    reals += ["method.ramp", "method.momentum", "model.leak", "model.bn_momentum", "model.bn_epsilon"]
    search: dict[str, Any] = {"model.name": ["wrn-10-1", "wrn-28-2"], "ensemble.private_channels": [64, 100]}
    search |= {key: [0.1, 0.2] for key in [*reals, "loss.agreement"]}
    assert 2 ** len(search) > MOST_CORNERS
    assert study(search=search).search.keys() == search.keys()
    del search["model.name"]
    with pytest.raises(ValueError, match="no point of the search can be built"):
        study(model="wrn-10-1", search=search)


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
        assert (config.training.seed, config.data.label_split) == (5, 6)


@pytest.mark.parametrize(
    ("given", "point"),
    [
        (
            {"loss": {"target": "hard"}, "search": {"ensemble.kind": ["channel", "single"]}},
            {"ensemble.kind": "single"},
        ),
        (
            {
                "method": {"name": "freematch", "momentum": 0.99},
                "search": {"method.name": ["freematch", "fixmatch"]},
            },
            {"method.name": "fixmatch"},
        ),
        (
            {"ensemble": {"private_channels": 8}, "search": {"ensemble.heads": {"int": [1, 4]}}},
            {"ensemble.heads": 1},
        ),
    ],
)
def test_the_config_of_any_trial_is_a_training_file(
    given: dict[str, Any], point: dict[str, Any], tmp_path: Path
) -> None:
    study = StudyConfig.model_validate({"name": "several", **given})
    file = tmp_path / "trial.yaml"
    file.write_text(yaml.safe_dump(study.train_config(point, 1, 2).to_plain()))
    assert read_config(TrainConfig, file) == study.train_config(point, 1, 2)
