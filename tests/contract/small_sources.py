"""Every data source on disk, small and in the format it reads in earnest, with what must come out of it."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow import fs

from cbe.spec import Data

Pixels = np.ndarray


@dataclass
class Made:
    """A source on disk, and what must come out of it."""

    config: Data
    images: Pixels | None = None
    labels: Pixels | None = None
    unlabeled: Pixels | None = None


def pixels(count: int, channels: int = 3, side: int = 12, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, side, side), dtype=np.uint8)


def png(image: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


def write_parquet(path: Path, images: Pixels, labels: Pixels | None, names: list[str] | None = None) -> None:
    columns: dict[str, object] = {"image": [{"bytes": png(image), "path": None} for image in images]}
    kinds = {"image": pa.struct([("bytes", pa.binary()), ("path", pa.string())])}
    if labels is not None:
        columns["label"], kinds["label"] = labels.tolist(), pa.int64()
    features = {"label": {"names": names, "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})} if names else None
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table(columns, schema=pa.schema(list(kinds.items()), metadata=about)), path, row_group_size=7
    )


def write_folder(folder: Path, images: Pixels, names: list[str] | None = None) -> None:
    """Image i goes to class i modulo the number of classes; without classes, straight into the folder."""
    for index, image in enumerate(images):
        place = folder / names[index % len(names)] if names else folder
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{index:04}.png").write_bytes(png(image))


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def make_digits(tmp: Path, request: pytest.FixtureRequest) -> Made:
    return Made(Data(source="digits", root=str(tmp), labels=20))


def make_parquet(tmp: Path, request: pytest.FixtureRequest) -> Made:
    images, labels = pixels(30), np.arange(30) % 3
    write_parquet(tmp / "set/train-0.parquet", images[:16], labels[:16], ["cat", "dog", "eel"])
    write_parquet(tmp / "set/train-1.parquet", images[16:], labels[16:], ["cat", "dog", "eel"])
    write_parquet(tmp / "set/test.parquet", pixels(6, seed=1), np.arange(6) % 3)
    (tmp / "set/validation.parquet").write_bytes(b"never read")
    config = Data(source="parquet", path=str(tmp / "set"), root=str(tmp / "root"), labels=7)
    return Made(config, images, labels)


def make_parquet_s3(tmp: Path, request: pytest.FixtureRequest) -> Made:
    query = request.getfixturevalue("s3")
    made = make_parquet(tmp, request)
    client = boto3.client("s3", endpoint_url="http://" + query.partition("=")[2].partition("&")[0])
    for file in (tmp / "set").iterdir():
        client.put_object(Bucket="cbe-bucket", Key=f"deep/set/{file.name}", Body=file.read_bytes())
    client.close()
    update = {"path": "s3://cbe-bucket/deep/set" + query}
    return Made(made.config.model_copy(update=update), made.images, made.labels)


def make_parquet_gs(tmp: Path, request: pytest.FixtureRequest) -> Made:
    made = make_parquet(tmp, request)
    path: str = request.getfixturevalue("gs").format(f"/{tmp.name}/deep/set")
    filesystem, root = fs.FileSystem.from_uri(path)
    fs.copy_files(str(tmp / "set"), root, destination_filesystem=filesystem)
    return Made(made.config.model_copy(update={"path": path}), made.images, made.labels)


def make_parquet_unlabeled(tmp: Path, request: pytest.FixtureRequest) -> Made:
    made = make_parquet(tmp, request)
    made.unlabeled = pixels(9, seed=2)
    write_parquet(tmp / "set/unlabeled.parquet", made.unlabeled, None)
    return made


def make_folder(tmp: Path, request: pytest.FixtureRequest) -> Made:
    images, names, own = pixels(24, 1), ["ant", "bee", "cow"], pixels(8, 1, seed=2)
    write_folder(tmp / "set/labeled", images, names)
    write_folder(tmp / "set/unlabeled/deep", own)
    write_folder(tmp / "set/test", pixels(6, 1, seed=1), names)
    for name in (
        "labeled/.hidden.png",
        "labeled/ant/.DS_Store.png",
        "unlabeled/__MACOSX/0.png",
        "labeled/notes.txt",
    ):
        (tmp / "set" / name).parent.mkdir(exist_ok=True)
        (tmp / "set" / name).write_bytes(b"no image")
    order = np.argsort(np.arange(24) % 3, kind="stable")
    config = Data(source="folder", path=str(tmp / "set"), root=str(tmp / "root"), labels=6)
    return Made(config, images[order], np.sort(np.arange(24) % 3), own)


def make_fashion_mnist(tmp: Path, request: pytest.FixtureRequest) -> Made:
    images, labels = pixels(40, 1, 28), np.arange(40) % 10
    raw = tmp / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    for part, these, those in (("train", images, labels), ("t10k", images[:20], labels[:20])):
        header = struct.pack(">IIII", 0x803, len(these), 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + these.tobytes())
        header = struct.pack(">II", 0x801, len(those))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + those.astype(np.uint8).tobytes())
    return Made(Data(source="fashion_mnist", root=str(tmp), labels=20), images, labels)


def make_cifar(tmp: Path, request: pytest.FixtureRequest, classes: int) -> Made:
    from cbe.data.vision import datasets

    build = datasets.CIFAR10 if classes == 10 else datasets.CIFAR100
    key, names_key = ("labels", "label_names") if classes == 10 else ("fine_labels", "fine_label_names")
    count = 6 * classes
    images, labels = pixels(count, 3, 32), np.arange(count) % classes
    folder = tmp / build.base_folder
    folder.mkdir()
    patch = request.getfixturevalue("monkeypatch")
    for attribute in ("train_list", "test_list"):
        names = [name for name, _ in getattr(build, attribute)]
        shards = zip(
            names, np.array_split(images, len(names)), np.array_split(labels, len(names)), strict=True
        )
        for name, these, those in shards:
            batch = {"data": these.reshape(len(these), -1), key: those.tolist()}
            (folder / name).write_bytes(pickle.dumps(batch))
        patch.setattr(build, attribute, [[name, md5(folder / name)] for name in names])
    meta = folder / build.meta["filename"]
    meta.write_bytes(pickle.dumps({names_key: [f"class {label}" for label in range(classes)]}))
    patch.setattr(build, "meta", {**build.meta, "md5": md5(meta)})
    return Made(Data(source=f"cifar{classes}", root=str(tmp), labels=2 * classes), images, labels)


def make_svhn(tmp: Path, request: pytest.FixtureRequest) -> Made:
    from scipy.io import savemat

    from cbe.data.vision import datasets

    images, labels = pixels(40, 3, 32), np.arange(40) % 10
    pins = {}
    for part in ("train", "test"):
        file = tmp / f"{part}_32x32.mat"
        savemat(file, {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None]})
        pins[part] = ["http://127.0.0.1:9/none", file.name, md5(file)]
    request.getfixturevalue("monkeypatch").setattr(datasets.SVHN, "split_list", pins)
    return Made(Data(source="svhn", root=str(tmp), labels=20), images, labels)


def make_stl10(tmp: Path, request: pytest.FixtureRequest) -> Made:
    from cbe.data.vision import datasets

    images, labels, own = pixels(40, 3, 96), np.arange(40) % 10, pixels(15, 3, 96, seed=2)
    folder = tmp / "stl10_binary"
    folder.mkdir()
    for part, these in (("train", images), ("test", images), ("unlabeled", own)):
        (folder / f"{part}_X.bin").write_bytes(these.transpose(0, 1, 3, 2).tobytes())
        (folder / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
    (folder / "class_names.txt").write_text("\n".join(f"class {label}" for label in range(10)))
    patch = request.getfixturevalue("monkeypatch")
    for attribute in ("train_list", "test_list"):
        pins = [[name, md5(folder / name)] for name, _ in getattr(datasets.STL10, attribute)]
        patch.setattr(datasets.STL10, attribute, pins)
    return Made(Data(source="stl10", root=str(tmp), labels=20), images, labels, own)


MAKERS: dict[str, Callable[[Path, pytest.FixtureRequest], Made]] = {
    "digits": make_digits,
    "parquet": make_parquet,
    "parquet on s3": make_parquet_s3,
    "parquet on gs": make_parquet_gs,
    "parquet with unlabeled": make_parquet_unlabeled,
    "folder": make_folder,
    "fashion_mnist": make_fashion_mnist,
    "cifar10": partial(make_cifar, classes=10),
    "cifar100": partial(make_cifar, classes=100),
    "svhn": make_svhn,
    "stl10": make_stl10,
}
