"""Study files: what they mean, and every fault at once with its place, value and a next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig, read_config
from cbe.spec.files import read_config_text
from cbe.spec.search import default_search, grid
from cbe.spec.settings import Scheduler
from cbe.spec.train import Training


def study(**sections: Any) -> StudyConfig:
    return StudyConfig.model_validate({"name": "a", **sections})


def faults(*settings: str, path: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_config(StudyConfig, path, ["name=a", *settings] if path is None else settings)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    "store", ["/nfs/results", "s3://bucket", "gs://bucket/x", "abfs://box@account.dfs.core.windows.net/x"]
)
def test_a_store_is_a_folder_or_in_a_bucket(store: str) -> None:
    kept = study(storage=store).storage
    assert kept.store == store and not kept.shared
    assert study(storage={"store": store, "shared": True}).storage.shared


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


def test_settings_of_the_loss_may_belong_to_any_ensemble_that_is_searched() -> None:
    given = [
        "name=a",
        "ensemble=single",
        "loss.lb_correlation=square",
        "search.ensemble.kind=[single, channel]",
    ]
    made = read_config(StudyConfig, settings=given)
    assert made.train_config({"ensemble.kind": "channel"}, 0, 0).loss.lb_correlation == "square"
    (fault,) = faults("ensemble=single", "loss.lb_correlation=square", "search.ensemble.kind=[single, model]")
    assert fault.startswith("loss.lb_correlation: 'square': ensemble single takes no loss.lb_correlation")


def test_a_stored_study_is_read_though_it_gives_settings_that_nothing_uses() -> None:
    text = "name: a\nmethod: {name: supervised, ramp: 0.3}\nsearch: {loss.weights.unlabeled: [1, 2]}\n"
    assert read_config_text(StudyConfig, text, is_stored=True).method.ramp == 0.3
    with pytest.raises(ConfigError) as caught:
        read_config_text(StudyConfig, text)
    assert [fault.where for fault in caught.value.faults] == ["study.yaml:2 method.ramp"]


def test_settings_reach_searched_keys_and_short_sections(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nsampler: gp\nsearch: {ensemble.heads: {int: [2, 8]}}\n")
    changed = read_config(
        StudyConfig, path, ["sampler.seed=7", "search.ensemble.heads=[3, 5]", "search.loss.weights.lb=[0, 1]"]
    )
    assert (changed.sampler.name, changed.sampler.seed) == ("gp", 7)
    assert changed.search["ensemble.heads"].listed == (3, 5)
    assert changed.search["loss.weights.lb"].listed == (0.0, 1.0)


def test_numbers_that_yaml_takes_for_text_are_numbers_in_the_search() -> None:
    made = study(
        search={
            "training.lr": ["1e-3", 0.1],
            "training.ema": {"choice": [0.9], "when": {"training.lr": "1e-3"}},
            "training.weight_decay": {"float": ["1e-4", "1e-2"], "log": True},
        }
    )
    assert made.search["training.lr"].listed == (0.001, 0.1)
    assert made.search["training.ema"].when == {"training.lr": (0.001,)}
    assert made.search["training.weight_decay"].listed == (0.0001, 0.01)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"search": {}},
        {"search": "default", "method": "freematch", "ensemble": "single"},
        {
            "objective": ["validation_error", "macs"],
            "confirm": {"seeds": [5, 6, 7]},
            "budget": {"wall_hours": 3},
        },
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


def test_every_config_runs_on_each_pair_of_seed_and_split() -> None:
    made = study(seeds=[3, 1], label_splits=[0, 5])
    assert made.pairs == ((3, 0), (3, 5), (1, 0), (1, 5))
    assert made.confirm_pairs == tuple((3 + n, 5 + n) for n in range(1, 11))  # 3 configs fit into 30 trials


def test_confirming_runs_take_the_listed_seeds_or_numbers_nobody_has_seen() -> None:
    assert study(confirm={"seeds": [7, 9], "label_splits": [4, 3]}).confirm_pairs == ((7, 4), (9, 3))
    made = study(confirm={"label_splits": [4, 3]})
    assert (made.confirm.runs, made.confirm_pairs) == (
        2,
        ((3, 4), (4, 3)),
    )  # a race of 30 trials has seen the seeds 0 to 2
    assert study(confirm={"runs": 0}).confirm_pairs == ()


@pytest.mark.parametrize(
    ("grace", "steps", "every", "expected"),
    [(0.1, 1000, 50, 100), (0.1, 1000, 30, 120), (0.07, 100, 1, 7), (1, 1000, 50, 50), (101, 1000, 50, 150)],
)
def test_grace_is_whole_evaluations(grace: float, steps: int, every: int, expected: int) -> None:
    assert Scheduler(grace=grace).grace_steps(Training(steps=steps, eval_every=every)) == expected
    assert Scheduler(grace=0.99).grace_steps(Training(steps=100, eval_every=70)) == 100


@pytest.mark.parametrize(
    ("trials", "given", "wanted"),
    [
        (100, {}, (2, 12)),
        (36, {}, (1, 12)),
        (24, {}, (1, 8)),
        (12, {}, (1, 4)),
        (9, {}, (1, 3)),
        (6, {}, (1, 2)),
        (3, {}, (1, 1)),
        (3, {"configs": 3, "runs": 5}, (3, 5)),
        (15, {"configs": 3}, (3, 3)),
        (15, {"runs": 5}, (1, 5)),
        (9, {"seeds": [7, 8, 9]}, (1, 3)),
        (3, {"runs": 5}, (1, 5)),
    ],
)
def test_by_default_the_confirmation_is_not_larger_than_the_search(
    trials: int, given: dict[str, Any], wanted: tuple[int, int]
) -> None:
    found = StudyConfig.model_validate({"name": "a", "budget": {"trials": trials}, "confirm": given})
    assert (found.confirm.configs, found.confirm.runs) == wanted
    assert StudyConfig.model_validate(found.to_plain()) == found
    if not given:
        assert found.confirm_runs <= trials
    assert [each[:18] for each in found.warnings] == (["One run to confirm"] if wanted[1] == 1 else [])


def test_a_small_grid_is_confirmed_by_a_small_confirmation() -> None:
    grid = {
        "name": "a",
        "sampler": "grid",
        "scheduler": "none",
        "search": {"ensemble.heads": {"int": [2, 5]}},
    }
    found = StudyConfig.model_validate(grid)
    assert (found.search_trials, found.confirm.configs, found.confirm.runs) == (6, 1, 2)
    assert found.confirm_runs == 6


@pytest.mark.parametrize("word", ["off", "none"])
def test_the_confirmation_can_be_switched_off_by_a_word(word: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"name: a\nconfirm: {word}\n")
    assert read_config(StudyConfig, tmp_path / "a.yaml").confirm_pairs == ()
