"""What a config is known by: its id, and its values as columns of a table."""

from __future__ import annotations

from typing import Any

import pytest

from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.identity import column_types, columns, config_id
from cbe.ssl import resolve


def study(**sections: Any) -> StudyConfig:
    return StudyConfig.model_validate({"name": "a", **sections})


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
