"""Every data source keeps one contract, on small files in the formats it reads in earnest.

The torchvision sets are written in their on-disk formats; the checksums torchvision pins are replaced by
those of the small files, and nothing is downloaded but from a server inside the test.
"""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import numpy as np
import pytest

from cbe.data import Dataset, Pool, open_dataset
from cbe.errors import DataError
from cbe.spec import Data
from cbe.spec.registry import SOURCES, load
from tests.contract.small_sources import (
    MAKERS,
    Made,
    make_fashion_mnist,
    make_parquet,
    make_parquet_s3,
    md5,
    pixels,
    write_parquet,
)


@pytest.fixture
def s3(s3_port: int, ambient: None) -> Iterator[str]:
    """The query that leads to a real S3 API with a bucket `cbe-bucket`."""
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3_port}")
    client.create_bucket(Bucket="cbe-bucket")
    yield f"?endpoint_override=127.0.0.1:{s3_port}&scheme=http&region=us-east-1"
    client.close()


@pytest.fixture(params=MAKERS)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    # So that small sets take several rounds too.
    for module in ("cbe.data.sources.parquet", "cbe.data.sources.folder", "cbe.data.sources.decode"):
        monkeypatch.setattr(f"{module}.AT_ONCE", 7)
    monkeypatch.setattr("cbe.data.cache._AT_ONCE", 7)
    result: Made = MAKERS[request.param](tmp_path, request)
    return result


def sets(found: Dataset) -> dict[str, object]:
    parts = {name: getattr(found, name) for name in ("labeled", "unlabeled", "validation", "test")}
    return {name: part for name, part in parts.items() if part is not None}


def test_every_registered_source_is_under_contract() -> None:
    assert {name.split()[0] for name in MAKERS} == set(SOURCES)


def test_a_source_gives_back_the_images_that_were_written(made: Made) -> None:
    pool: Pool = load(SOURCES, made.config.source)(made.config)
    assert pool.test is not None and len(pool.test)
    if made.images is not None:
        np.testing.assert_array_equal(pool.train.images, made.images)
        np.testing.assert_array_equal(pool.train.labels, made.labels)
    if made.unlabeled is None:
        assert pool.unlabeled is None
    else:
        np.testing.assert_array_equal(pool.unlabeled.images, made.unlabeled)
        assert set(pool.unlabeled.labels) == {-1}


def test_a_data_set_has_images_of_one_kind_and_labels_in_range(made: Made) -> None:
    found = open_dataset(made.config)
    shape = found.labeled.images.shape[1:]
    for name, part in sets(found).items():
        assert part.images.dtype == np.uint8 and part.images.shape == (len(part.labels), *shape), name
        assert part.labels.dtype == np.int64 and part.labels.max() < len(found.classes), name
        assert part.labels.min() >= (-1 if name == "unlabeled" else 0), name
    assert len(found.mean) == len(found.std) == shape[0] and min(found.std) > 0
    assert found.flip == (made.config.source not in ("digits", "svhn"))
    assert len(found.labeled) == made.config.labels
    np.testing.assert_array_equal(np.unique(found.labeled.labels), np.arange(len(found.classes)))


def test_a_split_is_disjoint_and_decided_by_the_split_seed_alone(made: Made) -> None:
    first, again = open_dataset(made.config), open_dataset(made.config)
    other = open_dataset(made.config.model_copy(update={"label_split": 1}))
    split = first.split
    assert not set(split.labeled) & set(split.validation)
    assert split.own_unlabeled == (made.unlabeled is not None)
    if split.own_unlabeled:
        assert len(first.unlabeled) == len(made.unlabeled) + len(first.labeled)
    else:
        assert not set(split.unlabeled) & set(split.validation) and set(split.labeled) <= set(split.unlabeled)
    assert split.digest == again.split.digest != other.split.digest
    np.testing.assert_array_equal(first.test.images, other.test.images)


def test_a_second_start_reads_the_same_arrays_from_the_cache(made: Made) -> None:
    cached = made.config.source != "digits"
    first_lines: list[str] = []
    second_lines: list[str] = []
    first = open_dataset(made.config, progress=first_lines.append)
    second = open_dataset(made.config, progress=second_lines.append)
    assert [line.rpartition(": ")[2] for line in first_lines] == ["decoding the images, once"] * cached
    assert second_lines == []
    assert isinstance(second.test.images, np.memmap) == cached
    for part, same in zip(sets(first).values(), sets(second).values(), strict=True):
        np.testing.assert_array_equal(part.images, same.images)
        np.testing.assert_array_equal(part.labels, same.labels)
    about = ("name", "classes", "flip", "mean", "std")
    assert [getattr(first, name) for name in about] == [getattr(second, name) for name in about]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_in_the_size_and_channels_asked_for(made: Made, channels: int) -> None:
    plain, asked = (
        open_dataset(made.config.model_copy(update=update))
        for update in ({}, {"size": 10, "channels": channels})
    )
    for name, part in sets(asked).items():
        assert part.images.shape[1:] == (channels, 10, 10), name
    np.testing.assert_array_equal(plain.split.labeled, asked.split.labeled)
    brightness = (plain.test.images.mean(), asked.test.images.mean())
    assert brightness[0] == pytest.approx(brightness[1], rel=0.05)


def refuses(config: Data, *wanted: str) -> None:
    """Opening fails with one line that says where, what was found, what is wanted and what to do."""
    with pytest.raises(DataError) as caught:
        open_dataset(config)
    for text in wanted:
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_s3_takes_its_endpoint_from_the_environment(
    tmp_path: Path, request: pytest.FixtureRequest, s3_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_parquet_s3(tmp_path, request).config
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_port}")
    assert len(open_dataset(config.model_copy(update={"path": "s3://cbe-bucket/deep/set"})).labeled) == 7


def test_a_wrong_bucket_is_named_with_what_to_check(s3: str, tmp_path: Path) -> None:
    for path in ("s3://no-such-bucket/set", "s3://cbe-bucket/no-such-folder"):
        config = Data(source="parquet", path=path + s3, root=str(tmp_path))
        refuses(config, path, "does not exist", "wanted a .parquet file", "check", "AWS_")


def test_class_names_of_hugging_face_say_whether_images_may_be_mirrored(tmp_path: Path) -> None:
    for names, flip in ((["3", "7"], False), (["cat", "dog"], True)):
        write_parquet(tmp_path / "some.parquet", pixels(8), np.arange(8) % 2, names)
        config = Data(source="parquet", path=str(tmp_path / "some.parquet"), root=str(tmp_path), labels=2)
        found = open_dataset(config)
        assert found.classes == tuple(names) and found.flip == flip
        assert open_dataset(config.model_copy(update={"flip": not flip})).flip != flip


def test_labels_of_unlabeled_images_are_kept_for_metrics_where_they_are_known(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = make_parquet(tmp_path, request).config
    write_parquet(tmp_path / "set/unlabeled.parquet", pixels(4, seed=2), np.array([2, 0, 3, -5]))
    found = open_dataset(config.model_copy(update={"labeled_in_unlabeled": False}))
    assert found.unlabeled.labels.tolist() == [2, 0, -1, -1]


def test_a_complete_set_is_read_though_its_root_cannot_be_locked_or_written(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = make_fashion_mnist(tmp_path, request).config
    (tmp_path / ".fashion_mnist.lock").mkdir()
    (tmp_path / ".cache").write_bytes(b"")
    lines: list[str] = []
    assert len(open_dataset(config, progress=lines.append).labeled) == 20
    assert "going on without a cache" in lines[-1]


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_set_that_is_not_there_is_downloaded_with_a_progress_bar_on_a_terminal_only(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    mirror: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
) -> None:
    from cbe.data.vision import datasets

    folder, address = mirror
    made = make_fashion_mnist(tmp_path, request)
    for file in (tmp_path / "FashionMNIST/raw").iterdir():
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    pins = [(name, md5(folder / name)) for name, _ in datasets.FashionMNIST.resources]
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [address])
    monkeypatch.setattr(datasets.FashionMNIST, "resources", pins)
    config = made.config.model_copy(update={"root": str(tmp_path / "fresh")})
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stderr", stderr)
    assert len(open_dataset(config).labeled) == 20
    lines: list[str] = []
    open_dataset(config, progress=lines.append)
    assert lines == []
    assert ("100" in stderr.getvalue()) if terminal else stderr.getvalue() == ""


def test_a_failed_download_says_which_files_to_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cbe.data.vision import datasets

    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/")
    for source, file in (("fashion_mnist", "train-images-idx3-ubyte"), ("cifar10", "data_batch_1")):
        config = Data(source=source, root=str(tmp_path))
        refuses(
            config, f"{source} could not be downloaded", "refused", file, str(tmp_path), "copy", "parquet"
        )
