"""Exported models: to the bit what the trial evaluated, and nothing that does not fit together."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load as load_tensors
from torch import Tensor

from cbe.cli import main
from cbe.data import Dataset, open_dataset
from cbe.errors import DataError, InputError
from cbe.models.export import export_model
from cbe.models.files import Answer, Unreadable, predict_files
from cbe.models.model import Model
from cbe.models.trials import find
from cbe.report.lookup import read_study
from cbe.spec import TrainConfig
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store, StudyFolder
from cbe.training import checkpoint
from cbe.training.evaluate import Evaluator
from cbe.training.run import Run
from tests.conftest import small
from tests.models.trained import ENSEMBLES, TRAINING, add, study_at


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
    lost = {Path(each.file).name: each.reason for each in found if isinstance(each, Unreadable)}
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
    assert "is 8×16; the model takes 16×8; resize it" in other.reason


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
