"""Exported models: to the bit what the trial evaluated, and nothing that does not fit together."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from cbe.cli import main
from cbe.cli.models import _tell
from cbe.data import Dataset, open_dataset
from cbe.errors import DataError, InputError
from cbe.models import calibration
from cbe.models.about import About
from cbe.models.export import export_model
from cbe.models.files import Answer, Unreadable, predict_files
from cbe.models.model import Model
from cbe.models.trials import find
from cbe.report.lookup import read_study
from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import config_id
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.training import checkpoint
from cbe.training.evaluate import Evaluator
from cbe.training.loop import Snapshot, train
from cbe.training.run import Run
from tests.conftest import small

ENSEMBLES = {
    "single": {"kind": "single"},
    "temporal": {"kind": "temporal"},
    "multihead": {"kind": "multihead", "heads": 3},
    "channel": {"kind": "channel", "heads": 3},
    "model": {"kind": "model", "heads": 2},
}
TRAINING = {"steps": 20, "eval_every": 10, "eval_batch": 64, "lr": 0.1}  # validation in two uneven batches


def study_at(store: Path, config: TrainConfig) -> StudyFolder:
    """An empty study whose trials are of this config."""
    folder = Store.open(str(store)).study("first")
    plain = {"name": "first", **config.to_plain(), "ensemble": {"kind": "channel"}}
    study = StudyConfig.model_validate({key: plain[key] for key in ("name", "data", "model", "training")})
    folder.write(STUDY_FILE, yaml.safe_dump(study.to_plain()).encode())
    return folder


def add(folder: StudyFolder, trial: str, config: TrainConfig, data: Dataset, **known: Any) -> None:
    """Trains one trial and records it as a study does: checkpoint, curve and row."""
    config = resolve(config)
    last: dict[str, Any] = {}

    def report(metrics: dict[str, Any], snapshot: Snapshot) -> None:
        local = Path(folder.path(f"checkpoints/{trial}/{snapshot.step:09d}.pt"))
        snapshot.save(local)
        row = {name: metrics[name] for name in ("step", "validation_error", "test_error") if name in metrics}
        folder.append("metrics", [{"trial": trial, **row}])
        last.update(row, checkpoint=f"checkpoints/{trial}/{local.name}")

    train(config, data, report)
    row = {
        **{"trial": trial, "role": "search", "state": "completed", "params": "{}", "device": "cpu"},
        **{"config_id": config_id(config), "config": json.dumps(config.to_plain())},
        **{"seed": 0, "label_split": config.data.label_split, "split": data.split.digest},
        **{"objective": last["validation_error"], "values": [last["validation_error"]]},
        **{"step": last["step"], "checkpoint": last["checkpoint"]},
        **{"versions": json.dumps({"torch": torch.__version__}), "git_commit": "abc"},
    }
    folder.append("trials", [row | known])


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study with one trial of every ensemble, called by its name."""
    configs = {kind: small(ensemble=given, training=TRAINING) for kind, given in ENSEMBLES.items()}
    folder = study_at(tmp_path_factory.mktemp("store"), configs["single"])
    data = open_dataset(configs["single"].data)
    for trial, config in configs.items():
        add(folder, trial, config, data)
    return folder


@pytest.fixture(scope="module")
def exported(studied: StudyFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel ensemble, in every format; tests may not change it."""
    out = tmp_path_factory.mktemp("models") / "channel"
    return export_model(studied, out, "channel", ("onnx", "torch")).folder


@pytest.fixture
def own(exported: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return Path(shutil.copytree(exported, tmp_path / "own"))


@pytest.fixture(scope="module")
def pixels(digits: Dataset) -> Tensor:
    return torch.tensor(digits.validation.images)


def evaluated(folder: StudyFolder, trial: str, data: Dataset) -> Tensor:
    """What a trial's own evaluation says, after a restart from its checkpoint."""
    state = checkpoint.load(Path(folder.path(f"checkpoints/{trial}/{TRAINING['steps']:09d}.pt")))
    run = Run(TrainConfig.model_validate(state["config"]), data)
    run.load_state_dict(state["run"])
    run.ema.network.eval()
    evaluator = Evaluator(run)
    with torch.no_grad():
        return evaluator._predict(evaluator._validation)


@pytest.mark.parametrize("kind", ENSEMBLES)
def test_an_exported_model_says_to_the_bit_what_its_trial_evaluated(
    studied: StudyFolder, digits: Dataset, pixels: Tensor, tmp_path: Path, kind: str
) -> None:
    done = export_model(studied, tmp_path / kind, kind)
    said = Model.load(tmp_path / kind).predict(pixels)
    assert torch.equal(said.probs, evaluated(studied, kind, digits))
    wrong = (said.labels.numpy() != digits.validation.labels).mean()
    assert wrong == pytest.approx(done.about.validation_error) and 0 < wrong < 0.9
    heads = ENSEMBLES[kind].get("heads", 1)
    assert said.heads.shape == (100, heads, 10)
    assert (said.disagreement is None) == (heads == 1)
    if said.disagreement is not None:
        answers = said.heads.argmax(dim=2)
        pairs = [(a, b) for a in range(heads) for b in range(heads) if a < b]
        for mine, row in zip(said.disagreement, answers, strict=True):
            assert mine.item() == pytest.approx(np.mean([bool(row[a] != row[b]) for a, b in pairs]))
        assert 0 < said.disagreement.mean() < 1


def test_a_model_file_tells_where_it_comes_from_and_what_it_takes(exported: Path, digits: Dataset) -> None:
    about = json.loads((exported / "model.json").read_text())
    assert (about["study"], about["trial"], about["step"]) == ("first", "channel", 20)
    assert about["classes"] == list(digits.classes)
    assert about["image"] == {"channels": 1, "height": 8, "width": 8}
    assert (about["mean"], about["std"]) == (list(digits.mean), list(digits.std))
    assert (about["git_commit"], about["versions"]) == ("abc", {"torch": torch.__version__})
    config = TrainConfig.model_validate(about["config"])
    assert config == resolve(config) and config.heads == 3 and config.training.precision == "float32"
    assert set(load_tensors((exported / "model.safetensors").read_bytes())) >= {"classify.weight"}


def test_onnx_and_torch_export_answer_as_torch_does_whatever_the_batch(
    exported: Path, pixels: Tensor
) -> None:
    import onnxruntime

    said = Model.load(exported).predict(pixels)
    session = onnxruntime.InferenceSession(exported / "model.onnx", providers=["CPUExecutionProvider"])
    program = torch.export.load(io.BytesIO((exported / "model.pt2").read_bytes())).module()
    for count in (1, 7, 100):
        onnx = session.run(["probs", "heads"], {"pixels": pixels[:count].numpy()})
        torched = program(pixels[:count])
        for index, mine in enumerate((said.probs[:count], said.heads[:count])):
            assert mine.numpy() == pytest.approx(onnx[index], abs=1e-4)
            assert torch.allclose(mine, torched[index], rtol=0, atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == [str(k) for k in range(10)]


def test_no_exported_file_names_a_place_on_this_machine(exported: Path) -> None:
    import cbe

    here = str(Path(cbe.__file__).parent).encode()
    for file in exported.iterdir():
        assert here not in file.read_bytes(), file


def test_calibration_lowers_the_loss_and_keeps_every_label(
    exported: Path, digits: Dataset, pixels: Tensor
) -> None:
    model = Model.load(exported)
    said, labels, fitted = (
        model.predict(pixels),
        torch.tensor(digits.validation.labels),
        model.about.calibration,
    )
    loss = torch.nn.functional.nll_loss
    before, after = (loss(probs.double().log(), labels).item() for probs in (said.probs, said.calibrated))
    assert (fitted.nll_before, fitted.nll_after) == pytest.approx((before, after))
    assert after < before and fitted.n == 100 and fitted.temperature != 1
    assert torch.equal(said.calibrated.argmax(dim=1), said.labels)
    for temperature in (0.9, 1.1):  # no neighbour is better
        other = calibration.calibrated(said.probs, temperature * fitted.temperature)
        assert calibration.loss(other, labels) > after


def test_a_temperature_of_overconfident_predictions_is_found_and_stays_bounded() -> None:
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(5000, 4, generator=generator).softmax(dim=1)
    labels = honest.multinomial(1, generator=generator)[:, 0]
    sharp = calibration.calibrated(honest, 1 / 3)
    fitted = calibration.fit(sharp, labels)
    assert fitted.temperature == pytest.approx(3, rel=0.1)
    assert fitted.ece_before > 0.1 > 0.03 > fitted.ece_after
    right = calibration.fit(honest, honest.argmax(dim=1))
    assert right.temperature == pytest.approx(calibration.COLDEST, rel=0.01)


def rows_of(folder: StudyFolder, runs: dict[str, tuple[str, float, float]], **known: Any) -> None:
    """Trials that are only rows: config, objective, test error."""
    plain = json.dumps(resolve(small()).to_plain())
    for seed, (trial, (config, objective, test)) in enumerate(runs.items()):
        row = {"trial": trial, "role": "search", "state": "completed", "config_id": config, "params": "{}"}
        figures = {"objective": objective, "values": [objective], "last_test_error": test}
        folder.append(
            "trials", [{**row, **figures, "config": plain, "seed": seed, "label_split": 0, **known}]
        )


def test_without_a_trial_it_is_the_best_run_of_the_best_config_whatever_the_test_set_says(
    tmp_path: Path,
) -> None:
    folder = study_at(tmp_path, small())
    runs = {"t0": ("a", 0.3, 0.0), "t1": ("a", 0.1, 0.9), "t2": ("b", 0.25, 0.0), "t3": ("b", 0.24, 0.0)}
    rows_of(folder, runs)
    assert find(folder, read_study(folder), None)["trial"] == "t1"


def test_a_study_ranked_by_test_error_chooses_no_model(tmp_path: Path) -> None:
    folder = study_at(tmp_path, small())
    study = {"name": "first", "objective": "test_error", "allow_test_selection": True}
    folder.write(STUDY_FILE, yaml.safe_dump(study).encode())
    rows_of(folder, {"t0": ("a", 0.3, 0.3)})
    with pytest.raises(InputError, match=r"ranked by test error.*give --trial"):
        export_model(folder, tmp_path / "out")
    assert find(folder, read_study(folder), "t0")["trial"] == "t0"


def test_unknown_unfinished_and_misnamed_trials_are_refused(tmp_path: Path) -> None:
    folder = study_at(tmp_path, small())
    rows_of(folder, {"t0": ("a", 0.3, 0.3), "../t1": ("a", 0.3, 0.3)})
    rows_of(folder, {"t2": ("a", 0.3, 0.3)}, state="running")
    rows_of(folder, {"t3": ("a", 0.3, 0.3)}, state="failed", error_class="NonFiniteLoss")
    rows_of(folder, {"t4": ("a", 0.3, 0.3)}, checkpoint="../../etc/passwd")
    for trial, message in {
        "t00": "none of that name; did you mean t0",
        "x": "none of that name; see them with `cbe show first`",
        "../t1": "wanted letters, digits",
        "t2": "is interrupted; wanted one that is completed or pruned",
        "t3": r"is failed \(NonFiniteLoss\)",
        "t0": "no checkpoint is recorded",
        "t4": "is not a path below a study",
    }.items():
        with pytest.raises(InputError, match=message):
            export_model(folder, tmp_path / "out", trial)
    with pytest.raises(InputError, match="there is none of that name; did you mean first"):
        export_model(Store.open(str(tmp_path)).study("frist"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_lost_a_damaged_and_an_unrecorded_checkpoint_are_refused(tmp_path: Path, digits: Dataset) -> None:
    folder = study_at(tmp_path, small())
    add(folder, "t0", small(ensemble="single"), digits)
    name = "checkpoints/t0/000000004.pt"
    content = folder.read(name)
    assert content is not None
    folder.append("trials", [{"trial": "t1", "state": "completed", "config_id": "a", "checkpoint": name}])
    with pytest.raises(InputError, match="no validation error is recorded at step 4"):
        export_model(folder, tmp_path / "out", "t1")
    folder.write(name, content[:-100])
    with pytest.raises(InputError, match=rf"{name} cannot be used \(damaged, or of another version\)"):
        export_model(folder, tmp_path / "out", "t0")
    folder.delete(name)
    with pytest.raises(InputError, match=f"{name} is gone from .*give another --trial"):
        export_model(folder, tmp_path / "out", "t0")


def test_changed_data_are_noticed_and_moved_data_are_found(tmp_path: Path, digits: Dataset) -> None:
    images = tmp_path / "images"
    for index, (image, label) in enumerate(
        zip(digits.validation.images, digits.validation.labels, strict=True)
    ):
        place = images / "labeled" / f"digit {label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0]).save(place / f"{index:03d}.png")
    data = {"source": "folder", "path": str(images), "root": str(tmp_path), "labels": 20, "validation": 50}
    config = small(data=data, ensemble="single", training=TRAINING)
    folder = study_at(tmp_path / "store", config)
    add(folder, "t0", config, open_dataset(config.data))
    moved = images.rename(tmp_path / "moved")
    with pytest.raises(DataError, match="does not exist"):
        export_model(folder, tmp_path / "out", "t0")
    study_at(tmp_path / "store", small(data=data | {"path": str(moved)}, training=TRAINING))
    first = export_model(folder, tmp_path / "out", "t0")
    assert first.about.classes == tuple(f"digit {label}" for label in range(10))

    one, two = (moved / "labeled" / f"digit {label}" for label in (0, 9))
    one.rename(moved / "aside"), two.rename(one), (moved / "aside").rename(two)
    with pytest.raises(DataError, match=r"of 50 validation images wrong, but \d+ were recorded at step 20"):
        export_model(folder, tmp_path / "changed", "t0")
    shutil.copy(next(one.iterdir()), one / "more.png")
    with pytest.raises(DataError, match=r"label split .*they have changed; bring the old data back"):
        export_model(folder, tmp_path / "changed", "t0")
    assert not (tmp_path / "changed").exists()


def test_a_trial_of_a_gpu_may_differ_by_an_image_and_one_of_a_cpu_by_none(
    tmp_path: Path, digits: Dataset
) -> None:
    folder = study_at(tmp_path, small())
    for trial, device in (("c", "cpu"), ("g", "NVIDIA A100")):
        add(folder, trial, small(ensemble="single"), digits, device=device)
    recorded = folder.table("metrics", ["trial", "step", "validation_error"]).to_pylist()
    off = [row | {"validation_error": row["validation_error"] - 0.01} for row in recorded]
    folder.append("metrics", off)
    with pytest.raises(DataError, match="the data have changed"):
        export_model(folder, tmp_path / "c", "c")
    export_model(folder, tmp_path / "g", "g")
    folder.append("metrics", [row | {"validation_error": row["validation_error"] - 0.02} for row in recorded])
    with pytest.raises(DataError, match="the data have changed"):
        export_model(folder, tmp_path / "h", "g")


def test_a_model_is_replaced_with_all_its_files_where_that_is_wished(studied: StudyFolder, own: Path) -> None:
    asked: list[str] = []

    def answer(what: str) -> bool:
        asked.append(what)
        return len(asked) > 1

    with pytest.raises(InputError, match="already; choose another -o, or replace it with --force"):
        export_model(studied, own, "single", may_replace=answer)
    done = export_model(studied, own, "single", may_replace=answer)
    assert asked == [f"{own}: holds the model of first channel at step 20 already"] * 2
    assert sorted(path.name for path in own.iterdir()) == ["model.json", "model.safetensors"]
    assert Model.load(own).about == done.about


def test_a_folder_in_use_is_refused_and_the_same_model_is_given_further_formats(
    studied: StudyFolder, own: Path, tmp_path: Path
) -> None:
    (own / "model.pt2").unlink()
    before = (own / "model.json").read_bytes()
    with pytest.raises(InputError, match="holds the model of first channel at step 20 already"):
        export_model(studied, own, "single")
    assert (own / "model.json").read_bytes() == before
    again = export_model(studied, own, "channel", ["torch"])
    assert again.files == ("model.safetensors", "model.pt2", "model.json")
    assert (own / "model.pt2").exists() and (own / "model.onnx").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files but no model"):
        export_model(studied, tmp_path / "photos", "channel")
    with pytest.raises(InputError, match="is a file; wanted a folder"):
        export_model(studied, tmp_path / "photos/a.txt", "channel")
    with pytest.raises(InputError, match="could not be written"):
        export_model(studied, Path("/proc/model"), "channel")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "photos"]


def test_formats_that_there_are_not_are_refused_before_any_work(
    studied: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="there are onnx, torch; did you mean onnx"):
        export_model(studied, tmp_path / "out", formats=["onx"])
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"onnx not installed; .*pip install 'cbe-studies\[onnx\]'"):
        export_model(studied, tmp_path / "out", formats=["onnx"])


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain.update(format=2), "of format 2, written by a newer cbe-studies"),
        (lambda plain: plain.update(format="1"), "format: Input should be 1"),
        (lambda plain: plain.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda plain: plain.pop("classes"), "classes: Field required"),
        (lambda plain: plain["classes"].append("0"), "wanted every name once"),
        (
            lambda plain: plain["classes"].append("ten"),
            r"classify.bias is float32 \[3, 10\].*wants.*\[3, 11\]",
        ),
        (lambda plain: plain["std"].append(1.0), "mean and std: wanted 1 values each"),
        (lambda plain: plain.update(std=[0.0]), "std.0: Input should be greater than 0"),
        (lambda plain: plain["image"].update(height=10**9), "image.height"),
        (lambda plain: plain["calibration"].update(temperature=float("nan")), "calibration.temperature"),
        (lambda plain: plain["config"]["ensemble"].update(kind="os.system"), "no ensemble of that name"),
        (lambda plain: plain["config"]["model"].update(name="wrn-1000-64"), "too small for wrn-1000-64"),
        (lambda plain: plain["config"]["ensemble"].update(heads=2), r"classify.bias is float32 \[3, 10\]"),
        (lambda plain: plain.update(weights_sha256="0" * 64), "damaged, or another model's"),
    ],
)
def test_a_foreign_description_is_refused(own: Path, change: Change, message: str) -> None:
    plain = json.loads((own / "model.json").read_text())
    change(plain)
    (own / "model.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match=message):
        Model.load(own)


FOREIGN = {
    **{"empty": b"", "open": b"{", "list": b"[]", "null": b"null", "no text": b"\xff\xfe"},
    **{"deep": b"[" * 100_000, "bare": b'{"format": 1}', "large": b" " * (2**24 + 1)},
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_description_is_refused(own: Path, content: bytes) -> None:
    (own / "model.json").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.json: "):
        Model.load(own)


def replaced(own: Path, content: bytes) -> None:
    """Puts other weights into a model, with a description that vouches for them."""
    (own / "model.safetensors").write_bytes(content)
    plain = json.loads((own / "model.json").read_text())
    plain["weights_sha256"] = hashlib.sha256(content).hexdigest()
    (own / "model.json").write_text(json.dumps(plain))


def test_weights_that_are_damaged_or_another_networks_are_refused(own: Path) -> None:
    content = (own / "model.safetensors").read_bytes()
    (own / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(InputError, match="damaged, or another model's; export it again"):
        Model.load(own)
    (own / "model.safetensors").write_bytes(content[:1000])
    with pytest.raises(InputError, match="truncated"):
        Model.load(own)
    state: dict[str, Any] = {"state": {"weight": torch.zeros(200_000)}}
    pickled = io.BytesIO()
    torch.save(state, pickled)
    for forged in (content[:-1], b"\xff" * len(content), pickled.getvalue()):
        replaced(own, forged)
        with pytest.raises(InputError, match="no weights in safetensors"):
            Model.load(own)
    weights = load_tensors(content)
    bias = weights["classify.bias"]
    for changed, message in (
        ({name: tensor for name, tensor in weights.items() if name != "classify.bias"}, "bias is missing"),
        (weights | {"more": bias.clone()}, r"more is float32 \[3, 10\]; its config wants missing"),
        (weights | {"classify.bias": bias.T.contiguous()}, r"bias is float32 \[10, 3\]"),
        (weights | {"classify.bias": bias.double()}, "bias is float64"),
    ):
        replaced(own, save_tensors(changed))
        with pytest.raises(InputError, match=message):
            Model.load(own)
    replaced(own, content + b"\0" * 2**24)
    with pytest.raises(InputError, match="more than the"):
        Model.load(own)


def test_weights_without_numbers_give_an_error_instead_of_an_answer(own: Path, pixels: Tensor) -> None:
    weights = load_tensors((own / "model.safetensors").read_bytes())
    weights["norm.running_var"].fill_(-1)
    replaced(own, save_tensors(weights))
    with pytest.raises(InputError, match="lead to no numbers"):
        Model.load(own).predict(pixels)


def test_what_is_no_model_folder_is_refused_and_a_pipe_is_not_waited_for(own: Path, tmp_path: Path) -> None:
    assert isinstance(Model.load(own / "model.safetensors").about, About)
    for path, message in (
        (own / "model.onnx", "is no exported model"),
        (tmp_path / "none", "there is nothing of that name"),
        (tmp_path, r"model\.json: cannot be read \(No such file"),
    ):
        with pytest.raises(InputError, match=message):
            Model.load(path)
    (own / "model.json").unlink()
    os.mkfifo(own / "model.json")
    with pytest.raises(InputError, match="not a plain file"):
        Model.load(own)


def test_pixels_of_another_kind_are_refused_and_none_at_all_are_fine(exported: Path, pixels: Tensor) -> None:
    model = Model.load(exported)
    for wrong in (pixels.float(), pixels[0], pixels.repeat(1, 3, 1, 1), pixels[:, :, :4]):
        with pytest.raises(DataError, match=r"wanted uint8 \[N, 1, 8, 8\]"):
            model.predict(wrong)
    assert model.predict(pixels[:0]).probs.shape == (0, 10)
    assert torch.equal(model.predict(pixels.numpy()).probs, model.predict(pixels).probs)


@pytest.fixture
def photos(digits: Dataset, tmp_path: Path) -> Path:
    """Validation images as files of several kinds, and two that are none."""
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    first, second, third = (Image.fromarray(image[0]) for image in digits.validation.images[:3])
    first.save(folder / "a grey.png")
    second.convert("RGB").save(folder / "b colour.PNG")
    third.resize((32, 48), Image.Resampling.NEAREST).convert("RGBA").save(folder / "below/c large.png")
    (folder / "b broken.png").write_bytes(b"no image")
    (folder / "notes.txt").write_text("no image either")
    (folder / ".hidden.png").write_bytes(b"hidden")
    return folder


def test_files_are_decoded_into_the_models_shape_and_a_broken_one_costs_no_other(
    exported: Path, photos: Path, pixels: Tensor
) -> None:
    model = Model.load(exported)
    said = model.predict(pixels[:3])
    empty = photos / "empty"
    empty.mkdir()
    found = list(predict_files(model, [photos, photos / "none.png", empty], batch=2))
    answers = [each for each in found if isinstance(each, Answer)]
    assert [Path(each.file).name for each in answers] == ["a grey.png", "b colour.PNG", "c large.png"]
    for index in (0, 1):  # the same pixels, whatever the file's mode
        assert list(answers[index].probabilities.values()) == pytest.approx(
            said.probs[index].tolist(), abs=1e-6
        )
        assert answers[index].label == str(said.labels[index].item())
        assert answers[index].probability == pytest.approx(said.probs[index].max().item(), abs=1e-6)
        assert answers[index].confidence == pytest.approx(said.calibrated[index].max().item(), abs=1e-6)
    lost = {Path(each.file).name: each.why for each in found if isinstance(each, Unreadable)}
    assert lost.keys() == {"b broken.png", "none.png", "empty"}
    assert "no image of a known format" in lost["b broken.png"]
    assert "there is no such file" in lost["none.png"] and "no image in it" in lost["empty"]


def test_a_model_of_images_that_are_not_square_takes_only_its_own_shape(own: Path, tmp_path: Path) -> None:
    plain = json.loads((own / "model.json").read_text())
    plain["image"]["width"] = 16
    (own / "model.json").write_text(json.dumps(plain))
    for name, size in (("fits.png", (16, 8)), ("other.png", (8, 16))):
        Image.new("L", size).save(tmp_path / name)
    fits, other = predict_files(Model.load(own), [tmp_path / "fits.png", tmp_path / "other.png"], batch=1)
    assert isinstance(fits, Answer) and isinstance(other, Unreadable)
    assert "is 8×16; the model takes 16×8; resize it" in other.why


@pytest.fixture
def cbe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; gives its exit code and what it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cbe", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err  # type: ignore[return-value]

    return run


def test_a_temperature_of_few_images_is_not_to_be_relied_on(
    studied: StudyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = export_model(studied, tmp_path / "single", "single")
    for n, told in ((49, True), (50, False)):
        fitted = done.about.calibration.model_copy(update={"n": n})
        _tell(replace(done, about=done.about.model_copy(update={"calibration": fitted})))
        said = " ".join(capsys.readouterr().err.split())
        assert (f"{n} images are few for a temperature: do not rely on confidences." in said) == told


def test_a_model_is_exported_and_used_from_the_command_line(
    studied: StudyFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cbe: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Path(studied.uri).parent
    code, out, err = cbe("export-model", "first", "--trial", "multihead", "--store", store)
    assert (code, out) == (0, "models/first-multihead\n"), err
    assert "validation error, as recorded (n = 100)" in err and "cbe predict models/first-multihead" in err
    code, out, _ = cbe("export-model", "first", "--store", store, "-o", "best", "--json")
    lowest = min(studied.table("trials", ["objective"])["objective"].to_pylist())
    assert (code, json.loads(out)["validation_error"]) == (0, lowest)
    kept = (tmp_path / "models/first-multihead/model.json").read_bytes()
    again = ("export-model", "first", "--store", store, "-o", "models/first-multihead", "--trial")
    code, _, err = cbe(*again, "single")
    assert code == 2 and "already; choose another -o, or replace it with --force" in err
    assert (tmp_path / "models/first-multihead/model.json").read_bytes() == kept
    code, _, err = cbe(*again, "multihead", "--to", "torch")
    assert code == 0 and (tmp_path / "models/first-multihead/model.pt2").exists(), err
    assert (tmp_path / "models/first-multihead/model.json").read_bytes() == kept

    code, out, err = cbe("predict", "models/first-multihead", photos, "--format", "csv")
    assert code == 2 and "b broken.png: cannot be read" in err and "1 of the images cannot be read" in err
    assert out.splitlines()[0] == "file,label,probability,confidence,disagreement"
    assert len(out.splitlines()) == 4
    code, out, _ = cbe("predict", "models/first-multihead", photos, "--json", "--batch", "1")
    plain = json.loads(out)
    assert code == 2 and [Path(each["file"]).name for each in plain["unreadable"]] == ["b broken.png"]
    assert sum(plain["images"][0]["probabilities"].values()) == pytest.approx(1)
    code, out, err = cbe("predict", "best/model.safetensors", photos / "a grey.png")
    assert (code, err) == (0, "") and "a grey.png" in out and "disagreement" in out
    code, _, err = cbe("predict", "nothing", photos)
    assert code == 2 and err.startswith("cbe: nothing: there is nothing of that name; wanted a folder")


def test_a_class_name_cannot_steer_the_terminal(own: Path, photos: Path, cbe: Any) -> None:
    plain = json.loads((own / "model.json").read_text())
    plain["classes"] = [f"\x1b[31m{name}[bold]" for name in plain["classes"]]
    (own / "model.json").write_text(json.dumps(plain))
    code, out, _ = cbe("predict", own, photos / "a grey.png")
    assert code == 0 and "\x1b" not in out and "[bold]" in out
