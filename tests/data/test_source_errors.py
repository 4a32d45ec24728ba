"""What is wrong with a parquet file or a folder is said in one line: where, what, wanted, what next."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cbe.data import open_dataset
from cbe.errors import DataError
from cbe.spec import Data

LABELS = [0, 1] * 4


def png(side: int = 12, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def refuses(config: Data, wanted: str) -> None:
    """Opening fails with one line that has the texts between the dots, in that order."""
    with pytest.raises(DataError) as caught:
        open_dataset(config)
    message, at = str(caught.value), 0
    for text in wanted.split(" … "):
        assert text in message[at:], message
        at = message.index(text, at)
    assert "\n" not in message


def parquet(tmp: Path, **columns: object) -> Data:
    pq.write_table(pa.table(columns), tmp / "some.parquet")
    return Data(source="parquet", path=str(tmp / "some.parquet"), root=str(tmp), labels=2, validation=2)


@pytest.fixture
def folder(tmp_path: Path) -> Data:
    for name in ("labeled/ant", "labeled/bee", "test/bee", "unlabeled"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "set" / name / f"{number}.png").write_bytes(png(seed=number))
    return Data(source="folder", path=str(tmp_path / "set"), root=str(tmp_path), labels=2, validation=2)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    nowhere, empty = tmp_path / "nowhere", tmp_path / "empty"
    empty.mkdir()
    refuses(
        Data(source="parquet", path=str(nowhere)),
        f"{nowhere} does not exist … wanted a .parquet file … check",
    )
    refuses(
        Data(source="folder", path=str(nowhere)),
        f"{nowhere} does not exist … wanted labeled/<class> … correct",
    )
    file = tmp_path / "file"
    file.write_text("")
    refuses(Data(source="folder", path=str(file)), f"{file} is a file … wanted labeled/<class> … correct")
    refuses(
        Data(source="parquet", path=str(empty)), f"{empty} has no file … wanted … train*.parquet … rename"
    )
    refuses(
        Data(source="folder", path=str(empty)),
        f"{empty}: has nothing … wanted labeled/<class> … or only <class>/* … make it",
    )
    refuses(Data(source="parquet", path="ftp://a/b"), "data.path ftp://… … wanted a local path, s3://bucket")


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(DataError) as caught:
        open_dataset(Data(source="parquet", path="s3://key:geheim@bucket/set"))
    assert "AWS_ACCESS_KEY_ID" in str(caught.value) and "geheim" not in str(caught.value)


def test_columns_that_are_missing_or_ambiguous_are_listed(tmp_path: Path) -> None:
    image, text = [png()] * 8, ["x"] * 8
    where = "some.parquet: "
    config = parquet(tmp_path, text=text, label=LABELS)
    refuses(config, where + "no image column among text (string), label (int64) … wanted binary … write")
    config = parquet(tmp_path, image=image, text=text)
    refuses(config, where + "no label column among image (binary), text (string) … wanted integers … add")
    config = parquet(tmp_path, a=image, b=image, label=LABELS)
    refuses(config, where + "a, b may each be the image column … label (int64) … wanted one … rename")
    config = parquet(tmp_path, image=image, label=LABELS, target=LABELS)
    refuses(config, where + "label, target may each be the label column … wanted one … rename")


def test_columns_are_found_by_name_or_as_the_only_one_of_their_type(tmp_path: Path) -> None:
    found = open_dataset(parquet(tmp_path, raw=[png()] * 8, fine_label=LABELS, coarse=LABELS))
    assert found.classes == ("0", "1") and found.test is None and found.flip


def test_rows_that_cannot_be_used_are_named_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbe.data.sources.parquet.AT_ONCE", 3)
    images = [png()] * 8
    config = parquet(tmp_path, image=[*images[:5], b"broken", *images[6:]], label=LABELS)
    refuses(config, "some.parquet row 5: cannot be read (no image … wanted one of PNG … replace or remove")
    config = parquet(tmp_path, image=[*images[:7], None], label=LABELS)
    refuses(config, "some.parquet row 7: no bytes in column image … wanted the encoded image … write")
    config = parquet(tmp_path, image=images, label=[*LABELS[:6], None, 1])
    refuses(config, "some.parquet row 6: label -1 in column label … wanted 0 to 1 … correct")
    config = parquet(tmp_path, image=images, label=[*LABELS[:7], 10**9])
    refuses(config, "some.parquet row 7: label 1000000000 in column label … wanted 0 to 7 … correct")
    (tmp_path / "some.parquet").write_bytes(b"no parquet")
    refuses(config, "some.parquet: cannot be read … wanted a parquet file … replace")
    config = parquet(tmp_path, image=pa.array([], pa.binary()), label=pa.array([], pa.int8()))
    refuses(config, "some.parquet: has no rows … wanted images … remove")


def test_a_row_is_counted_from_the_start_of_its_own_file(tmp_path: Path) -> None:
    for name, labels in (("train-0", LABELS), ("train-1", [0, 1, -1])):
        table = pa.table({"image": [png()] * len(labels), "label": labels})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    refuses(Data(source="parquet", path=str(tmp_path), root=str(tmp_path)), "train-1.parquet row 2: label -1")


def test_a_folder_with_link_loops_is_read_once(folder: Data, tmp_path: Path) -> None:
    unlabeled = tmp_path / "set/unlabeled"
    (unlabeled / "loop").symlink_to(unlabeled)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/0.png").write_bytes(png())
    (tmp_path / "elsewhere/back").symlink_to(unlabeled)
    (unlabeled / "linked").symlink_to(tmp_path / "elsewhere")
    assert len(open_dataset(folder).split.unlabeled) == 3 + 1


def test_what_does_not_belong_in_a_folder_is_named(folder: Data, tmp_path: Path) -> None:
    stray, strange, empty, gone = (
        tmp_path / "set" / name
        for name in ("labeled/stray.png", "test/dodo", "labeled/dodo", "unlabeled/gone.png")
    )
    stray.write_bytes(png())
    refuses(folder, f"{stray}: lies in no class folder … wanted labeled/<class> … move or remove")
    stray.unlink()
    strange.mkdir()
    refuses(folder, f"{strange}: no class of that name … wanted one of ant, bee … rename or remove")
    strange.rmdir()
    empty.mkdir()
    refuses(folder, "class dodo has no image … wanted at least one … add images or remove")
    empty.rmdir()
    gone.symlink_to(tmp_path / "nowhere")
    refuses(folder, f"{gone}: cannot be read … wanted an image … replace or remove")


def test_sizes_that_differ_name_two_files_and_the_setting_that_helps(folder: Data, tmp_path: Path) -> None:
    first, other = tmp_path / "set/labeled/ant/0.png", tmp_path / "set/test/bee/1.png"
    other.write_bytes(png(side=13))
    refuses(folder, f"{other}: is 13×13, but {first} is 12×12 … wanted one size … set data.size")
    found = open_dataset(folder.model_copy(update={"size": 16}))
    assert found.test is not None and found.test.images.shape == (3, 3, 16, 16)


@pytest.mark.parametrize("side", [7, 129])
def test_sizes_that_are_too_small_or_large_name_the_setting_that_helps(
    folder: Data, tmp_path: Path, side: int
) -> None:
    file = tmp_path / "set/unlabeled/1.png"
    file.write_bytes(png(side=side))
    refuses(folder, f"{file}: is {side}×{side} … wanted 8 to 128 … set data.size")
    assert open_dataset(folder.model_copy(update={"size": 8})).unlabeled.images.shape == (5, 3, 8, 8)


def bomb(side: int) -> bytes:
    """A few bytes of PNG that say they are very large."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("default")  # the refusal must not come from pytest making errors of warnings
@pytest.mark.parametrize("side", [10_000, 100_000])
def test_a_decompression_bomb_is_refused(folder: Data, tmp_path: Path, side: int) -> None:
    file = tmp_path / "set/unlabeled/1.png"
    file.write_bytes(bomb(side))
    refuses(folder.model_copy(update={"size": 8}), f"{file}: cannot be read … decompression bomb … replace")


@pytest.mark.parametrize("content", [b"", b"GIF89a", png()[:-40], b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_an_unreadable_file_is_named(folder: Data, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "set/unlabeled/2.png"
    file.write_bytes(content)
    refuses(folder, f"{file}: cannot be read … wanted one of PNG … replace or remove")
