"""Temperatures of calibration: they lower the loss, keep every label, and stay bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cbe.cli.models import _tell
from cbe.data import Dataset
from cbe.models import calibration
from cbe.models.export import export_model
from cbe.models.model import Model
from cbe.store.folder import StudyFolder


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


def test_a_temperature_of_few_images_is_not_to_be_relied_on(
    studied: StudyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = export_model(studied, tmp_path / "single", "single")
    for n, told in ((49, True), (50, False)):
        fitted = done.about.calibration.model_copy(update={"n": n})
        _tell(replace(done, about=done.about.model_copy(update={"calibration": fitted})))
        said = " ".join(capsys.readouterr().err.split())
        assert (f"{n} images are few for a temperature: do not rely on confidences." in said) == told
