"""Configs: defaults, and every fault at once with its place, value and a next step."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbe.errors import CbeError, CheckpointError, ConfigError, DataError, Fault, InputError, NonFiniteLoss
from cbe.spec import TrainConfig, read_config
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.methods import METHODS
from cbe.ssl import method_of, resolve

FAULTY = """\
data:
  source: digitz
  labels: lots
method: fixmtch
ensemble:
  kind: channel
  headz: 3
training:
  steps: 0
  forward: both
loss:
  weights: {lbb: 1, lv: -1}
"""


def faults(path: Path | None = None, *settings: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_config(TrainConfig, path, settings)
    return [str(fault) for fault in caught.value.faults]


def test_all_faults_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FAULTY)
    found = {fault.split(": ")[0].removeprefix(f"{path}:"): fault for fault in faults(path)}
    assert set(found) == {
        *("2 data.source", "3 data.labels", "4 method.name", "7 ensemble.headz"),
        *("9 training.steps", "10 training.forward", "12 loss.weights.lbb", "12 loss.weights.lv"),
    }
    assert found["2 data.source"].endswith("did you mean digits?")
    assert found["4 method.name"].endswith("did you mean fixmatch?")
    assert found["7 ensemble.headz"].endswith("unknown key; did you mean heads?")
    assert "'lots'" in found["3 data.labels"] and "integer" in found["3 data.labels"]
    assert "'joint' or 'split'" in found["10 training.forward"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["steps"], "not of the form key=value"),
        (["training.lr=[1"], "is not a value"),
        (["model=wrn-11-1"], "wrn-DEPTH-WIDTH, depth 6n+4"),
        (["ensemble.private_channels=128"], "ensemble.private_channels: 128 does not leave a shared channel"),
        (
            ["ensemble=single", "ensemble.heads=3"],
            "ensemble.heads: 3: ensemble single takes no heads; leave it out, or use ensemble model",
        ),
        (
            ["ensemble=multihead", "ensemble.private_channels=3"],
            "private_channels; leave it out, or use ensemble channel",
        ),
        (
            ["ensemble=single", "loss.weights.lb=1"],
            "loss.weights.lb: ensemble single has no private channels",
        ),
        (["data.source=parquet"], "source parquet needs path"),
        (["data.path=x"], "source digits takes no path"),
        (["training=3", "training.lr=1"], "training is a value, not a section"),
        (["data.label_indices=[1,-2]"], "data.label_indices.1: -2"),
        (["training.lr=nan"], "finite number"),
        (["nonsense.key=1"], "unknown key"),
    ],
)
def test_bad_settings_say_what_is_wanted(settings: list[str], message: str) -> None:
    assert message in "\n".join(faults(None, *settings))


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("{}")
    with pytest.raises(InputError, match=r"no such file; did you mean .*study\.yaml\?"):
        read_config(TrainConfig, tmp_path / "studdy.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", r"a\.yaml:\d+: not valid YAML"),
        ("training: {lr: 1}\ntraining: {steps: 2}", r"a\.yaml:2: .*training is given twice"),
        ("- 1", "a list or a single value"),
        ("training: &t {steps: 3}\ndata: *t", "aliases are not allowed"),
        ("data: !!python/object/apply:os.system [ls]", "not valid YAML"),
    ],
)
def test_yaml_that_is_broken_or_dangerous_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_config(TrainConfig, path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as text"):
        read_config(TrainConfig, path)
    path.write_bytes(b"x" * 1_000_001)
    with pytest.raises(InputError, match="larger than"):
        read_config(TrainConfig, path)


def test_settings_and_names_come_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("method: uda\nensemble: {kind: channel, heads: 4}\ntraining: {lr: 1e-3}\n")
    config = read_config(
        TrainConfig, path, ["method.threshold=0.7", "ensemble.kind=multihead"], {"model": "wrn-16-2"}
    )
    assert (config.method.name, config.method.threshold) == ("uda", 0.7)
    assert (config.ensemble.kind, config.ensemble.heads) == ("multihead", 4)
    assert (config.model.name, config.training.lr) == ("wrn-16-2", 0.001)


def test_another_method_or_ensemble_by_name_leaves_the_settings_of_the_old_one_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "method: {name: uda, threshold: 0.7}\nensemble: {heads: 4}\nmodel: {name: wrn-10-1, leak: 0.2}\n"
    )
    names = {"method": "freematch", "ensemble": "channel", "model": "wrn-16-2"}
    config = read_config(TrainConfig, path, (), names)
    assert (config.method.threshold, config.heads) == (None, 4)
    assert (config.model.name, config.model.leak) == ("wrn-16-2", 0.2)
    path.write_text("method: uda\nensemble: {kind: channel, heads: 4}\n")
    assert read_config(TrainConfig, path, ["ensemble=single"]).heads == 1


@pytest.mark.parametrize(
    "error",
    [
        ConfigError([Fault("a.b", "is wrong", "mend it"), Fault("c", "too")]),
        NonFiniteLoss(3, {"loss": 1.0}),
        CheckpointError("no space", retry=True),
        DataError("no such image"),
    ],
)
def test_an_error_is_the_same_after_the_way_between_processes(error: CbeError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (str(other), other.retry, type(other)) == (str(error), error.retry, type(error))


def test_defaults_are_the_papers() -> None:
    config = resolve(TrainConfig())
    assert (config.heads, config.private_channels) == (5, 13)
    assert (config.method.threshold, config.training.seed) == (0.9, 1388)
    assert (config.training.batch_size, config.training.unlabeled_ratio, config.training.steps) == (
        32,
        7,
        204_800,
    )
    weights = config.loss.weights
    assert (weights.labeled, weights.unlabeled, weights.lb, weights.lv) == (1, 1, 1, 1)
    assert resolve(TrainConfig.model_validate({"ensemble": "single"})).method.threshold == 0.95


@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_ensemble_is_a_config_that_resolves_once(method: str, ensemble: str) -> None:
    config = resolve(TrainConfig.model_validate({"method": method, "ensemble": ensemble}))
    assert resolve(config) == config
    assert TrainConfig.model_validate(config.to_plain()) == config
    if config.heads == 1:
        assert config.loss.weights.unlabeled == method_of(config).weight
        assert (config.loss.weights.lb, config.loss.weights.lv) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["method=freematch", "method.threshold=0.9"],
            "threshold: 0.9: method freematch takes no threshold; leave it out, or use method pseudo-label",
        ),
        (["method.fairness=0.5"], "method.fairness: 0.5: method fixmatch takes no fairness"),
        (["method.momentum=0.5"], "or use method freematch or softmatch"),
        (["method=supervised", "method.ramp=0.5"], "method supervised takes no ramp"),
        (["method=supervised", "loss.weights.unlabeled=3"], "supervised takes no loss.weights.unlabeled"),
        (
            ["ensemble.momentum=0.5"],
            "ensemble channel takes no momentum; leave it out, or use ensemble temporal",
        ),
        (
            ["ensemble=single", "loss.target=hard"],
            "loss.target: 'hard': ensemble single takes no loss.target",
        ),
        (
            ["ensemble=model", "loss.lb_pairs=ring"],
            "takes no loss.lb_pairs; leave it out, or use ensemble channel",
        ),
        (
            ["ensemble.heads=1", "loss.agreement=0.4"],
            "ensemble channel with 1 head takes no loss.agreement; leave it out, or use 2 heads or more",
        ),
        (["ensemble=temporal", "ensemble.momentum=0.5", "method=softmatch", "method.momentum=0.5"], None),
    ],
)
def test_a_setting_that_the_method_or_the_ensemble_does_not_take_is_refused(
    settings: list[str], message: str | None
) -> None:
    if message is None:
        read_config(TrainConfig, None, settings)
    else:
        (fault,) = faults(None, *settings)
        assert message in fault


@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("method", METHODS)
def test_a_config_that_was_written_out_in_full_can_be_given_again(
    method: str, ensemble: str, tmp_path: Path
) -> None:
    config = TrainConfig.model_validate({"method": method, "ensemble": ensemble})
    for number, each in enumerate((config, resolve(config))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(json.dumps(each.to_plain()))
        assert read_config(TrainConfig, path) == each


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_setting_whatever_ends_in_anything_but_a_config_or_a_clear_error(key: str, value: str) -> None:
    try:
        read_config(TrainConfig, settings=[f"{key}={value}"])
    except ConfigError as error:
        assert all(fault.where and fault.problem for fault in error.faults)


def test_a_relative_path_starts_at_the_file_and_one_that_is_set_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "studies/pets.yaml"
    file.parent.mkdir()
    file.write_text("data: {source: folder, path: ../pets}\n")

    def path(*settings: str, of: Path | None = file) -> str | None:
        return read_config(TrainConfig, of, settings).data.path

    assert path() == path(of=Path("studies/pets.yaml")) == str(tmp_path / "pets")
    assert path("data.path=cats") == str(tmp_path / "cats")
    assert path("data.source=folder", "data.path=cats", of=None) == str(tmp_path / "cats")
    assert path("data.path=/srv/cats") == "/srv/cats"
    assert path("data.path=~/cats") == str(Path.home() / "cats")
    assert path("data.source=parquet", "data.path=s3://bucket/cats") == "s3://bucket/cats"
    assert path("data.path=~nobody-of-that-name/cats") == str(tmp_path / "~nobody-of-that-name/cats")
