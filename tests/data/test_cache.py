"""The cache of images: left when something changes, and whole whatever happens to a writer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cbe.data import Dataset, ImageSet, cache, open_dataset
from cbe.spec import Data
from tests.data.test_dataset import make_folder, same


def copied(found: Dataset) -> Dataset:
    """The same with images of its own, which no change of a file reaches."""
    sets = {name: getattr(found, name) for name in ("labeled", "unlabeled", "validation")}
    return replace(found, **{name: ImageSet(np.array(s.images), s.labels) for name, s in sets.items()})


def entries(config: Data) -> list[Path]:
    return sorted(Path(config.root, ".cache").iterdir())


def test_the_cache_is_left_when_a_file_or_a_setting_changes(tmp_path: Path) -> None:
    config = make_folder(tmp_path)
    before = open_dataset(config)
    assert before.labeled.images.shape == (2, 1, 9, 10)
    open_dataset(config.model_copy(update={"size": 8}))
    open_dataset(config.model_copy(update={"channels": 3}))
    assert len(entries(config)) == 3
    open_dataset(config.model_copy(update={"labels": 4, "label_split": 3}))
    assert len(entries(config)) == 3
    file = tmp_path / "set/unlabeled/2.png"
    about = file.stat()
    Image.fromarray(np.full((9, 10), 7, np.uint8)).save(file)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    after = open_dataset(config)
    assert len(entries(config)) == 4 and not same(before, after)
    assert (after.unlabeled.images[2] == 7).all()


@pytest.mark.parametrize(
    "name", ["pool.json", "train_images.npy", "train_labels.npy", "unlabeled_images.npy"]
)
@pytest.mark.parametrize("harm", ["cut", "emptied", "gone", "pickled"])
def test_a_damaged_cache_entry_is_built_again(tmp_path: Path, name: str, harm: str) -> None:
    config = make_folder(tmp_path)
    first = copied(open_dataset(config))
    (entry,) = entries(config)
    if harm == "gone":
        (entry / name).unlink()
    elif harm == "pickled":
        with (entry / name).open("wb") as file:
            np.save(file, np.array([print], dtype=object))
    else:
        (entry / name).write_bytes((entry / name).read_bytes()[: -20 if harm == "cut" else 0])
    lines: list[str] = []
    assert same(first, open_dataset(config, progress=lines.append))
    assert [": damaged (" in line for line in lines] == [True, False]
    assert same(first, open_dataset(config, progress=lines.append)) and len(lines) == 2
    assert entries(config) == [entry]


def test_a_killed_writer_leaves_nothing_that_a_reader_takes(tmp_path: Path) -> None:
    config = make_folder(tmp_path)
    program = (
        "import os, signal, sys\n"
        "from cbe.data import cache, open_dataset\n"
        "from cbe.spec import Data\n"
        "def half(path, images):\n"
        "    path.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "cache._save = half\n"
        "open_dataset(Data.model_validate_json(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, config.model_dump_json()], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = entries(config)
    assert left.name.startswith(".")
    first = open_dataset(config)
    assert same(first, open_dataset(config)) and len(entries(config)) == 2
    # Much later, the next writer of the same entry clears up.
    os.utime(left, (time.time() - 2 * 24 * 3600,) * 2)
    shutil.rmtree(entries(config)[1])
    assert same(first, open_dataset(config))
    assert left not in entries(config)


def test_writers_at_the_same_time_both_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, both = make_folder(tmp_path), threading.Barrier(2, timeout=30)
    write = cache._write

    def together(*args: object) -> None:
        both.wait()
        write(*args)  # type: ignore[arg-type]
        both.wait()

    monkeypatch.setattr(cache, "_write", together)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(open_dataset, [config, config])
    assert same(one, other) and len(entries(config)) == 1
    assert isinstance(one.unlabeled.labels, np.ndarray) and same(one, open_dataset(config))


def test_a_root_that_cannot_be_written_costs_the_cache_only(tmp_path: Path) -> None:
    config = make_folder(tmp_path)
    (tmp_path / "root").write_text("a file, so that no folder can be made below it")
    lines: list[str] = []
    assert len(open_dataset(config, progress=lines.append).labeled) == 2
    assert len(lines) == 2 and "cannot be written" in lines[1] and "going on without a cache" in lines[1]
