"""What a study file's unknown keys were probably meant to be."""

from __future__ import annotations

import pytest

from cbe.errors import ConfigError
from cbe.spec import StudyConfig, TrainConfig, read_config
from cbe.spec.suggestions import SYNONYMS, keys_at


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("budget.hours=2", "did you mean wall_hours?"),
        ("learning_rate=0.1", "did you mean training.lr?"),
        ("training.learning_rate=0.1", "did you mean lr?"),
        ("lr=0.1", "did you mean training.lr?"),
        ("heads=3", "did you mean ensemble.heads?"),
        ("model.heads=3", "did you mean ensemble.heads?"),
        ("n_trials=9", "did you mean budget.trials?"),
        ("num_trials=9", "did you mean budget.trials?"),
        ("num-samples=9", "did you mean budget.trials?"),
        ("training.batch=8", "did you mean batch_size?"),
        ("epochs=3", "did you mean training.steps, a number of steps, not of epochs?"),
        ("dataset=digits", "did you mean data.source?"),
        ("data.img_size=32", "did you mean size?"),
        ("lb=1", "did you mean loss.weights.lb?"),
        ("loss.lambda_u=1", "did you mean weights.unlabeled?"),
        ("momentum=0.5", "did you mean ensemble.momentum, method.momentum or training.momentum?"),
        ("batchsize=8", "did you mean training.batch_size?"),
        ("scheduler.grase=0.1", "did you mean grace?"),
        ("search.learning_rate=[0.1]", "did you mean training.lr?"),
        ("search.training.wd=[0.1]", "did you mean training.weight_decay?"),
        ("search.momentum=[0.1]", "did you mean ensemble.momentum, method.momentum or training.momentum?"),
        ("budget.zzz=1", "there are trials, wall_hours, gpu_hours, usd"),
    ],
)
def test_an_unknown_key_is_answered_with_the_key_that_was_meant(setting: str, meant: str) -> None:
    with pytest.raises(ConfigError) as told:
        read_config(StudyConfig, settings=["name=a", setting])
    assert str(told.value) == f"{setting.partition('=')[0]}: unknown key; {meant}"


def test_a_training_file_is_not_told_of_keys_that_only_a_study_has() -> None:
    with pytest.raises(ConfigError) as told:
        read_config(TrainConfig, settings=["n_trials=9"])
    assert "budget" not in str(told.value)


@pytest.mark.parametrize("other", SYNONYMS)
def test_every_synonym_leads_to_a_key_that_exists(other: str) -> None:
    *above, last = SYNONYMS[other].partition(", ")[0].split(".")
    assert last in keys_at(StudyConfig, above)
