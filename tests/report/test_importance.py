"""Which parameters matter: what is said, how sure it is, and when nothing is said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from cbe.report.importance import FEWEST, MAX_CONFIGS, Importance, importances
from cbe.spec import StudyConfig

SEARCH = {
    "ensemble.heads": {"int": [2, 8]},
    "loss.weights.lb": {"float": [0.1, 10], "log": True},
    "loss.target": ["soft", "hard"],
    "loss.agreement": {"choice": [0.4, 0.6, 0.8], "when": {"loss.target": "hard"}},
}
STUDY = StudyConfig.model_validate({"name": "made", "search": SEARCH})

Point = Mapping[str, Any]


def points(count: int) -> list[dict[str, Any]]:
    random = Random(3)
    found = []
    for _ in range(count):
        point = {
            "ensemble.heads": random.randint(2, 8),
            "loss.weights.lb": math.exp(random.uniform(math.log(0.1), math.log(10))),
            "loss.target": random.choice(["soft", "hard"]),
        }
        if point["loss.target"] == "hard":
            point["loss.agreement"] = random.choice([0.4, 0.6, 0.8])
        found.append(point)
    return found


def row(number: int, point: Point, value: float | None, **known: Any) -> dict[str, Any]:
    return {
        **{"trial": f"t{number:04d}", "role": "search", "preset": None, "state": "completed"},
        **{"config_id": f"config {number}", "params": json.dumps(dict(point)), "seed": 0, "label_split": 0},
        **{"objective": value, "values": None if value is None else [value], "step": 300},
        **known,
    }


def by_heads(point: Point) -> float:
    return 0.1 + 0.03 * abs(point["ensemble.heads"] - 5)


def found(rows: list[dict[str, Any]], study: StudyConfig = STUDY) -> list[Importance]:
    answer = importances(study, rows)
    assert isinstance(answer, list), answer
    return answer


def rows_of(count: int, value: Callable[[Point], float] = by_heads) -> list[dict[str, Any]]:
    return [row(number, point, value(point)) for number, point in enumerate(points(count))]


def test_the_parameter_that_decides_is_the_most_important_and_clearly_so() -> None:
    first, *others = found(rows_of(60))
    assert first.key == "ensemble.heads" and first.low > max(each.high for each in others)
    assert sum(each.value for each in (first, *others)) == pytest.approx(1)
    assert all(each.low <= each.value <= each.high for each in (first, *others))


def test_what_is_to_be_maximised_is_read_the_other_way_round() -> None:
    plain = STUDY.to_plain() | {"objective": [{"metric": "validation_loss", "direction": "maximize"}]}
    study = StudyConfig.model_validate(plain)
    turned = rows_of(60, lambda point: 1 - by_heads(point))
    assert found(turned, study) == found(rows_of(60)) != found(turned)


def test_the_same_trials_say_the_same() -> None:
    assert found(rows_of(30)) == found(rows_of(30))


def test_a_parameter_that_some_configs_lack_counts_in_those_that_have_it() -> None:
    rows = rows_of(40)
    n = {each.key: each.n for each in found(rows)}
    hard = sum("loss.agreement" in json.loads(each["params"]) for each in rows)
    assert n == {key: 40 for key in SEARCH} | {"loss.agreement": hard} and 0 < hard < 40


def test_one_config_on_several_seeds_is_one_config() -> None:
    few = rows_of(FEWEST - 1)
    again = [each | {"trial": f"x{seed}", "seed": seed} for each in few for seed in (1, 2)]
    assert "7 configs" in str(importances(STUDY, few + again))


def test_only_trials_of_the_search_that_were_trained_to_the_end_count() -> None:
    rows = rows_of(20)
    for number, point in enumerate(points(60)[20:], start=20):
        rows.append(row(number, point, 0.0, state="pruned"))
    rows.append(row(90, points(1)[0], 0.0, role="confirm"))
    rows.append(row(91, points(1)[0], math.nan))
    rows.append(row(92, {"training.lr": 0.1}, 0.0))  # of a space that the study had before
    assert found(rows) == found(rows_of(20))


@pytest.mark.parametrize("count", [MAX_CONFIGS, MAX_CONFIGS + 1])
def test_of_very_many_configs_some_are_drawn_and_all_are_counted(count: int) -> None:
    first = found(rows_of(count))[0]
    assert (first.n, first.of) == (MAX_CONFIGS, count)


def test_too_few_configs_are_a_reason_and_no_numbers() -> None:
    assert importances(STUDY, rows_of(FEWEST - 1)) == ("7 configs of the search completed, and 8 are needed")


def test_equal_values_are_a_reason_and_no_numbers() -> None:
    assert "same value" in str(importances(STUDY, rows_of(20, lambda _: 0.1)))


def test_optuna_is_neither_heard_nor_left_silent(capfd: pytest.CaptureFixture[str]) -> None:
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        found(rows_of(10))
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(before)
    assert capfd.readouterr() == ("", "")
