"""What there is in a folder of images, and the study file to begin with."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from cbe.data.sources import folder as image_files
from cbe.data.sources import parquet as parquet_files
from cbe.data.sources.columns import find_columns
from cbe.errors import DataError
from cbe.spec import Data

SIDES = (16, 24, 32, 48, 64)
_SEEN = 50  # images that are looked at for their size
_LAYOUTS = """expected one of
  FOLDER/labeled/CLASS/*.png, with FOLDER/unlabeled/* and FOLDER/test/CLASS/* if you have such images
  FOLDER/CLASS/*.png, at least two classes
  FOLDER/train*.parquet, with an image and a label column"""


@dataclass(frozen=True)
class FolderContents:
    """The images of a folder."""

    source: str  # folder or parquet
    per_class: dict[str, int]  # labeled images
    unlabeled: int
    test: int
    side: int  # of a typical image

    @property
    def labeled(self) -> int:
        return sum(self.per_class.values())

    @property
    def validation_images(self) -> int:
        share = self.validation
        return max(1, round(share * self.labeled)) if isinstance(share, float) else share

    @property
    def validation(self) -> float | int:
        """A fifth of the labeled images; fewer where a small class would have none left to train on."""
        classes, fewest = len(self.per_class), min(self.per_class.values())
        a_class = -(-round(0.2 * self.labeled) // classes)  # rounded up
        return 0.2 if a_class <= fewest // 2 else classes * (fewest // 2)


def scan_folder(path: Path) -> FolderContents:
    """What a folder holds; DataError with the expected layout where it cannot be used."""
    if not path.exists():
        raise DataError(f"{path}: does not exist; {_LAYOUTS}")
    is_parquet = path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))
    try:
        found = _parquet(path) if is_parquet else _images(path)
    except DataError as error:
        raise DataError(f"{error}\n{_LAYOUTS}") from None
    few = [name for name, count in found.per_class.items() if count < 2]
    if few or len(found.per_class) < 2:
        problem = f"class {few[0]} has fewer than 2 images" if few else "fewer than 2 classes"
        raise DataError(
            f"{path}: {problem}; wanted two classes or more, with two images each; "
            "one is for training, one for validation"
        )
    return found


def _images(path: Path) -> FolderContents:
    if not path.is_dir():
        raise DataError(f"{path}: is not a folder")
    sets, classes = image_files.find(path)
    counts = Counter(label for _, label in sets["labeled"])
    sizes = []
    for file, _ in sets["labeled"][:: max(1, len(sets["labeled"]) // _SEEN)]:
        try:
            with Image.open(file) as image:
                sizes.append(min(image.size))
        except OSError as error:
            raise DataError(f"{file}: cannot be read as an image ({error}); replace or remove it") from None
    per_class = {name: counts[label] for label, name in enumerate(classes)}
    unlabeled, test = (len(sets.get(name, ())) for name in ("unlabeled", "test"))
    return FolderContents("folder", per_class, unlabeled, test, _side(sizes))


def _parquet(path: Path) -> FolderContents:
    config = Data(source="parquet", path=str(path))
    pool = parquet_files.outline(config)
    counts = Counter(pool.train.labels.tolist())
    per_class = {name: counts[label] for label, name in enumerate(pool.classes)}
    files = [Path(name) for name, *_ in parquet_files.files(config)]
    sizes: list[int] = []
    for file in files if path.is_file() else [file for file in files if file.name.startswith("train")]:
        try:
            opened = pq.ParquetFile(file)
            sizes += _sizes(opened, find_columns(str(file), opened.schema_arrow, labeled=True).image)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file}: cannot be read ({error})") from None
    unlabeled, test = (len(each) if each else 0 for each in (pool.unlabeled, pool.test))
    return FolderContents("parquet", per_class, unlabeled, test, _side(sizes))


def _sizes(opened: pq.ParquetFile, column: str) -> list[int]:
    sizes = []
    for batch in islice(opened.iter_batches(_SEEN, columns=[column]), 1):
        for value in batch.column(0).to_pylist():
            content = value["bytes"] if isinstance(value, dict) else value
            if content:
                with Image.open(BytesIO(content)) as image:
                    sizes.append(min(image.size))
    return sizes


def _side(sizes: list[int]) -> int:
    typical = median(sizes) if sizes else SIDES[2]
    return max((side for side in SIDES if side <= typical), default=SIDES[0])


def study_name(folder: Path) -> str:
    """A study's name out of a folder's.

    >>> study_name(Path("My Pets (2024)"))
    'my-pets-2024'
    """
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().stem.lower()).strip("-")
    return name[:64].rstrip("-") or "images"


def study_text(name: str, found: FolderContents | None, path: str, *, gpu: bool) -> str:
    """A commented study file for what was found, or for the digits; small enough for this machine."""
    machine = _GPU if gpu else _CPU
    data = _DIGITS if found is None else _data(found, path, gpu)
    question = "Which setting of the channel-based ensemble is best on these images?"
    return _TEXT.format(name=name, question=question, data=data, machine=machine, **_SIZES[gpu])


def _data(found: FolderContents, path: str, gpu: bool) -> str:
    size = found.side if gpu else min(found.side, 32)
    counts = found.per_class.values()
    spread = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    held = found.validation_images
    quoted = "'" + path.replace("'", "''") + "'"
    lines = [
        f"  # Found {found.labeled:,} labeled images of {len(counts)} classes ({spread} each), "
        f"{found.unlabeled:,} unlabeled, {found.test:,} test.",
        f"  source: {found.source}",
        f"  path: {quoted}" + ("" if Path(path).is_absolute() else "  # relative to this file"),
        f"  size: {size}  # images are resized to {size} × {size}; larger is slower",
        "  labels: all  # or a number, to see how well fewer labels do",
        "  # Labeled images to compare configs by: a share or a number. "
        f"With {held:,} of them the error moves in steps of {100 / held:.3g} %.",
        f"  validation: {found.validation}",
    ]
    return "\n".join(lines)


_DIGITS = """\
  source: digits  # 8 × 8 handwritten digits; they come with scikit-learn, nothing is downloaded
  labels: 40  # of all training images, 4 in each class
  validation: 200  # images kept to compare configs: a number or a share, e.g. 0.1"""
_CPU = "a machine without a GPU: a small network and short runs"
_GPU = "a machine with a GPU"
_SIZES = {
    False: {
        "model": "wrn-10-1",
        "bn": 0.05,
        "steps": 300,
        "batch": 16,
        "ema": 0.98,
        "trials": 24,
        "runs": 12,
    },
    True: {
        "model": "wrn-28-2",
        "bn": 0.01,
        "steps": 9000,
        "batch": 32,
        "ema": 0.999,
        "trials": 20,
        "runs": 12,
    },
}
_TEXT = """\
# A study file. Check it with `cbe check`, see what it takes with `cbe plan`, run it with `cbe run`.
name: '{name}'
question: {question}

data:
{data}

method: fixmatch  # or freematch, flexmatch, softmatch, …

# Sized for {machine}.
model: {{name: {model}, bn_momentum: {bn}}}  # wrn-28-2 and 0.001 in the paper
training:
  steps: {steps}  # of each trial; more is better and slower; the paper has 204800
  batch_size: {batch}  # labeled images in a step; 7 times as many unlabeled ones come with them
  lr: 0.03
  ema: {ema}  # 0.999 for runs of many thousand steps

# What to search. `default` covers the ensemble, the threshold and the weights of the loss. To choose the
# parameters yourself, replace it by a list such as this one.
search: default
# search:
#   ensemble.heads: {{int: [2, 8]}}
#   method.threshold: {{float: [0.7, 0.99]}}
#   loss.weights.lb: {{float: [0.1, 4], log: true, prior: {{at: 1}}}}
#   training.lr: {{float: [0.01, 0.1], log: true}}
#   loss.target: [soft, hard]

scheduler: race  # trials pause at half of their steps, and the best third goes on

# The study stops at whichever comes first. `cbe resume` continues with a larger budget.
budget: {{trials: {trials}, wall_hours: 2}}

# Runs the best config again on new seeds and label splits, beside the paper's config and no ensemble.
confirm: {{configs: 1, runs: {runs}}}
"""
