"""`cbe export-model` and `cbe predict`: trained models outside the store."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cbe.cli import stores
from cbe.cli.studies import AsJson, Name
from cbe.cli.study_view import plain_table
from cbe.errors import DataError
from cbe.words import NOTHING, clean, figure

if TYPE_CHECKING:
    from cbe.models.export import Exported
    from cbe.models.files import Answer, Unreadable
    from cbe.models.model import Model

FEW = 50  # images, below which a fitted temperature may make confidences worse
_COLUMNS = ("file", "label", "probability", "confidence", "disagreement")


def export(
    name: Name,
    trial: Annotated[
        str | None, typer.Option(help="Which trial. Default: the best run of the best config.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The folder to write. Default: models/NAME-TRIAL.")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            help="Also write onnx (model.onnx, needs the extra cbe-studies[onnx]) or torch (model.pt2, by "
            "torch.export). May be repeated. Default: safetensors only."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model that is there without asking.")
    ] = False,
    store: stores.Option = None,
    as_json: AsJson = False,
) -> None:
    """Export a trial's model to a folder: weights as safetensors, a description as JSON.

    The weights are those of the exponential moving average. The model is first checked: it must make the
    validation error that the trial recorded. Confidences are calibrated on the same images. The onnx and
    torch files take uint8 pixels [N, C, H, W] and return probs [N, K] and heads [N, M, K].
    """
    from cbe.models.export import export_model

    study, _, of_study = name.partition("/")  # STUDY/TRIAL names a trial elsewhere, too

    def may_replace(what: str) -> bool:
        return force or (sys.stdin.isatty() and typer.confirm(f"{what}. Replace it?", err=True))

    folder = stores.existing(store).study(study)
    exported = export_model(folder, out, trial or of_study or None, to or (), may_replace)
    if as_json:
        print(json.dumps(exported.to_plain(), indent=2))
        return
    print(exported.folder)
    _tell(exported)


def _tell(exported: Exported) -> None:
    from cbe.cli.console import say

    about, fitted = exported.about, exported.about.calibration
    few = f" {fitted.n} images are few for a temperature: do not rely on confidences." * (fitted.n < FEW)
    say(
        f"{about.study} {about.trial}, step {about.step:,} of {about.config.training.steps:,}: "
        f"{figure('validation_error', about.validation_error)} validation error, as recorded "
        f"(n = {fitted.n}).\nTemperature {fitted.temperature:.3g}, the most likely on those images: loss "
        f"{fitted.nll_before:.3f} before, {fitted.nll_after:.3f} after; calibration error "
        f"{100 * fitted.ece_before:.1f} % before, {100 * fitted.ece_after:.1f} % after.{few}\n"
        f"Files: {', '.join(exported.files)}\nUse it: cbe predict {shlex.quote(str(exported.folder))} IMAGES…"
    )


def predict(
    model: Annotated[Path, typer.Argument(help="A folder written by `cbe export-model`.")],
    images: Annotated[list[Path], typer.Argument(help="Image files or folders of images.")],
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="Output format.")
    ] = "table",
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images per batch. Default: the trial's eval_batch.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Classify images with an exported model.

    Images are resized and made grey or RGB as in training. Probability is the model's own for the label,
    confidence the calibrated one. Disagreement is the share of pairs of heads with different labels. JSON has
    the probabilities of all classes. Images that cannot be read are reported on stderr and in the JSON; the
    others are still classified, and the exit code is 2.
    """
    from cbe.models.files import predict_files
    from cbe.models.model import Model

    loaded = Model.load(model)
    lost: list[Unreadable] = []
    answers = _readable(predict_files(loaded, images, batch), lost)
    if as_json or form == "json":
        _print_json(loaded, answers, lost)
    elif form == "csv":
        _print_csv(answers)
    else:
        _print_table(answers)
    if lost:
        raise DataError(f"{len(lost)} of the images cannot be read (see above); replace or remove them")


def _readable(found: Iterable[Answer | Unreadable], lost: list[Unreadable]) -> Iterator[Answer]:
    """The answers; what could not be read is said at once and remembered."""
    from cbe.cli.console import say
    from cbe.models.files import Unreadable

    for each in found:
        if isinstance(each, Unreadable):
            say(each.reason, "red")
            lost.append(each)
        else:
            yield each


def _print_json(model: Model, answers: Iterable[Answer], lost: list[Unreadable]) -> None:
    images = [each.to_plain() for each in answers]
    about = {"study": model.about.study, "trial": model.about.trial}
    print(json.dumps({**about, "images": images, "unreadable": [e.to_plain() for e in lost]}, indent=2))


def _print_csv(answers: Iterable[Answer]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for each in answers:
        figures = (each.probability, each.confidence, each.disagreement)
        texts = (text.encode("utf-8", "replace").decode() for text in (each.file, each.label))
        writer.writerow([*texts, *("" if value is None else f"{value:.6f}" for value in figures)])


def _print_table(answers: Iterable[Answer]) -> None:
    from rich.text import Text

    from cbe.cli.console import out

    table = plain_table(_COLUMNS[:2], _COLUMNS[2:])
    for each in answers:
        figures = (each.probability, each.confidence, each.disagreement)
        cells = (NOTHING if value is None else f"{value:.3f}" for value in figures)
        table.add_row(Text(clean(each.file)), Text(clean(each.label)), *cells)
    if table.row_count:
        out.print(table)
