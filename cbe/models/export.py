"""A trial's model as files that need no store:

model.safetensors  model.json  and, on request, model.onnx  model.pt2
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from cbe.data import Dataset
from cbe.errors import DataError, InputError
from cbe.files import replace_file
from cbe.models import formats as other
from cbe.models.about import ABOUT_FILE, WEIGHTS_FILE, About, Image, read_about
from cbe.models.calibration import fit
from cbe.models.model import Model, Predicted
from cbe.models.trials import Trained, data_of, find, restore
from cbe.report.lookup import read_study
from cbe.store.folder import StudyFolder

DEFAULT = "models"


@dataclass(frozen=True)
class Exported:
    folder: Path
    files: tuple[str, ...]
    about: About

    def to_plain(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "files": list(self.files), **self.about.to_plain()}


def export_model(
    folder: StudyFolder,
    out: Path | None = None,
    trial: str | None = None,
    formats: Collection[str] = (),
    may_replace: Callable[[str], bool] | None = None,
) -> Exported:
    """Writes a trial's model to a folder, models/STUDY-TRIAL when left out.

    Where the folder holds the same model, that is written again, with further formats. Where it holds another
    one, `may_replace` is asked with a sentence that says which; without `may_replace` that is refused.

    Without a trial it is the best config's, on the run whose objective is best. The model must make as many
    errors on the validation images as the trial recorded, or nothing is written.
    """
    other.require(formats)
    study = read_study(folder)
    trained = restore(folder, find(folder, study, trial))
    content = save_tensors(trained.weights)
    data = data_of(trained, study)
    about = _about(folder.name, trained, data, hashlib.sha256(content).hexdigest())
    out = out.expanduser() if out else Path(DEFAULT) / f"{about.study}-{about.trial}"
    replaces = _replaces_another(out, about, may_replace)
    model = Model.of(about, trained.weights, f"trial {about.trial}", device="cpu")
    pixels, labels = torch.tensor(data.validation.images), torch.tensor(data.validation.labels)
    predicted = model.predict(pixels)
    _require_recorded(trained, predicted, labels)
    about = about.model_copy(update={"calibration": fit(predicted.probs, labels)})
    model = Model(about, model.classifier, model.mode)
    # The description last: a folder that has one is whole.
    files = {WEIGHTS_FILE: content, **other.written(model, formats, pixels, predicted)}
    files[ABOUT_FILE] = about.encode()
    _write(out, files)
    if replaces:
        for each in other.FORMATS.values():  # of the model that was there
            if each.file not in files:
                (out / each.file).unlink(missing_ok=True)
    return Exported(out, tuple(files), about)


def _about(study: str, trained: Trained, data: Dataset, digest: str) -> About:
    _, channels, height, width = data.validation.shape
    row = trained.row
    mean, std = trained.config.model.normalisation(data.mean, data.std)
    try:
        return About(
            study=study,
            trial=row["trial"],
            config_id=row["config_id"],
            config=trained.config,
            step=trained.step,
            validation_error=trained.validation_error,
            classes=data.classes,
            image=Image.model_validate({"channels": channels, "height": height, "width": width}),
            mean=mean,
            std=std,
            git_commit=row["git_commit"],
            versions=json.loads(row["versions"] or "{}"),
            weights_sha256=digest,
        )
    except ValueError as error:
        raise InputError(
            f"trial {row['trial']}: what is recorded of it cannot be exported ({error}); give another --trial"
        ) from None


def _require_recorded(trained: Trained, predicted: Predicted, labels: Tensor) -> None:
    """Refuses a model that is not as good, or as bad, as it was recorded to be."""
    count, now = len(labels), int((predicted.labels != labels).sum())
    then = round(trained.validation_error * count)
    # A GPU rounds otherwise, which may turn a few images that are near a tie.
    allowed = 0 if trained.row["device"] in (None, "cpu") else max(1, count // 200)
    if abs(now - then) > allowed:
        raise DataError(
            f"trial {trained.row['trial']}: gets {now} of {count} validation images wrong, but {then} were "
            f"recorded at step {trained.step}: the data have changed; bring the old data back"
        )


def _replaces_another(out: Path, about: About, may_replace: Callable[[str], bool] | None) -> bool:
    """Whether a folder holds another model; refuses what may not be replaced, and what is no model."""
    hint = "choose another -o"
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; wanted a folder; {hint}")
    if not out.is_dir() or not any(out.iterdir()):
        return False
    if not (out / ABOUT_FILE).exists():
        raise InputError(f"{out}: holds files but no model; wanted an empty folder or none; {hint}")
    there = read_about(out)
    if about.is_same_model(there):
        return False
    what = f"{out}: holds the model of {there.study} {there.trial} at step {there.step} already"
    if may_replace is None:
        raise InputError(f"{what}; {hint}")
    if not may_replace(what):
        raise InputError(f"{what}; {hint}, or replace it with --force")
    return True


def _write(out: Path, files: Mapping[str, bytes]) -> None:
    """All files at once where the folder is new; else one after the other."""
    place = out.resolve()
    aside = place.with_name(f".{place.name}.{uuid.uuid4().int}")
    try:
        for name, content in files.items():
            replace_file(aside / name, methodcaller("write", content))
        if place.exists():
            for name in files:
                os.replace(aside / name, place / name)
        else:
            aside.rename(place)
    except OSError as error:
        raise InputError(
            f"{out}: could not be written ({error.strerror}); free some space, or choose another -o"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
