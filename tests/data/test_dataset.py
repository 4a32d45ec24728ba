"""Splits, the cache of decoded images, and how images are made alike."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cbe.data import Dataset, ImageSet, Pool, Split, open_dataset, open_pool
from cbe.data.images import joined, stats
from cbe.data.sources import decode
from cbe.data.split import draw
from cbe.errors import DataError
from cbe.spec import Data


def pool_of(counts: list[int], seed: int = 0, own: int = 0) -> Pool:
    """A pool with so many images of each class, mixed."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))

    def of(labels: np.ndarray) -> ImageSet:
        return ImageSet(np.zeros((len(labels), 1, 8, 8), np.uint8), labels.astype(np.int64))

    names = tuple(f"class {label}" for label in range(len(counts)))
    return Pool(of(labels), of(np.full(own, -1)) if own else None, None, names, True)


def counts_of(pool: Pool, indices: np.ndarray) -> np.ndarray:
    return np.bincount(pool.train.labels[indices], minlength=len(pool.classes))


@st.composite
def asked(draw_from: st.DrawFn) -> tuple[Pool, Data, int]:
    """A pool, a config that it can serve, and a second number of labels that it can serve too."""
    classes = draw_from(st.integers(2, 6))
    validation = draw_from(st.integers(1, 4 * classes))
    labels = draw_from(st.lists(st.integers(classes, 5 * classes), min_size=2, max_size=2))
    least = -(-validation // classes) + -(-max(labels) // classes) + 1  # one stays unlabeled
    counts = draw_from(st.lists(st.integers(least, least + 5), min_size=classes, max_size=classes))
    config = Data(
        labels=min(labels),
        validation=validation,
        label_split=draw_from(st.integers(0, 2**63 - 1)),
        labeled_in_unlabeled=draw_from(st.booleans()),
    )
    return pool_of(counts, draw_from(st.integers(0, 9))), config, max(labels)


@given(asked())
def test_any_split_is_disjoint_balanced_nested_and_keeps_its_validation(
    given: tuple[Pool, Data, int],
) -> None:
    pool, config, more = given
    split = draw(pool, config)
    labeled, validation, unlabeled = set(split.labeled), set(split.validation), set(split.unlabeled)
    assert (len(split.labeled), len(split.validation)) == (config.labels, config.validation)
    assert (len(labeled), len(validation)) == (config.labels, config.validation)
    assert not labeled & validation and not unlabeled & validation
    assert unlabeled | validation | labeled == set(range(len(pool.train)))
    assert labeled & unlabeled == (labeled if config.labeled_in_unlabeled else set())
    for indices in (split.labeled, split.validation):
        assert np.ptp(counts_of(pool, indices)) <= 1
    larger = draw(pool, config.model_copy(update={"labels": more}))
    assert labeled <= set(larger.labeled)
    np.testing.assert_array_equal(split.validation, larger.validation)
    fewer = draw(pool, config.model_copy(update={"validation": 1}))
    np.testing.assert_array_equal(split.labeled, fewer.labeled)


@given(asked())
def test_a_split_survives_json_and_its_digest_tells_it_from_others(given: tuple[Pool, Data, int]) -> None:
    pool, config, _ = given
    split = draw(pool, config)
    stored = json.loads(json.dumps(split.to_plain()))
    assert Split.from_plain(stored).to_plain() == split.to_plain()
    assert draw(pool, config).digest == split.digest and len(split.digest) == 16
    moved = Split(split.labeled[:-1], split.validation, np.append(split.labeled[-1:], split.unlabeled), False)
    own = Split(split.labeled, split.validation, split.unlabeled, own_unlabeled=True)
    assert len({split.digest, moved.digest, own.digest}) == 3
    stored["labeled"][0] += 1
    with pytest.raises(DataError, match=r"stored split: .* draw it again"):
        Split.from_plain(stored)


def test_the_digest_of_a_split_is_the_same_on_every_machine() -> None:
    assert draw(pool_of([9, 9]), Data(labels=4)).digest == "1f24b2a3d4360988"


def test_a_stored_split_that_lacks_a_list_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"stored split: not readable \(KeyError\('validation'\)\); wanted labeled"
    ):
        Split.from_plain({"labeled": [1]})


def test_the_remainder_of_the_labels_goes_to_classes_that_the_seed_chooses() -> None:
    pool = pool_of([20, 20, 20])
    lucky = set()
    for seed in range(20):
        counts = counts_of(pool, draw(pool, Data(labels=7, label_split=seed)).labeled)
        assert sorted(counts) == [2, 2, 3]
        lucky.add(int(counts.argmax()))
    assert lucky == {0, 1, 2}


def test_all_labels_are_those_that_validation_leaves() -> None:
    pool = pool_of([10, 20])
    split = draw(pool, Data(labels="all", validation=0.2))
    assert list(counts_of(pool, split.validation)) == [3, 3]
    assert set(split.labeled) | set(split.validation) == set(range(30)) and len(split.labeled) == 24
    few = draw(pool, Data(labels=4, validation=0.2))
    np.testing.assert_array_equal(split.validation, few.validation)
    assert set(few.labeled) <= set(split.labeled)


def test_explicit_indices_are_the_labels_and_validation_comes_from_the_others() -> None:
    pool = pool_of([10, 10])
    first = [int(np.flatnonzero(pool.train.labels == label)[0]) for label in (0, 1)]
    for seed in range(10):
        config = Data(label_indices=tuple(first[::-1]), validation=18, label_split=seed)
        split = draw(pool, config)
        assert list(split.labeled) == sorted(first)
        assert set(split.validation) == set(range(20)) - set(first)


def test_a_source_with_its_own_unlabeled_images_uses_all_of_those() -> None:
    split = draw(pool_of([5, 5], own=7), Data(labels=2))
    assert split.own_unlabeled and list(split.unlabeled) == list(range(7))


@pytest.mark.parametrize(
    ("counts", "config", "message"),
    [
        ([9, 9, 9], {"labels": 2}, "data.labels: 2 labels do not reach all 3 classes; give at least 3"),
        ([9, 0, 9], {"labels": 3}, "class class 1 has no image; wanted at least one.*add images or remove"),
        (
            [9, 3, 9],
            {"labels": 9, "validation": 3},
            "class class 1 has 3 .* 1 for validation and 3 .*; lower",
        ),
        ([9, 9], {"labels": 2, "validation": 18}, "data.validation: 18 asks for 18 of 18 .*; give a smaller"),
        ([9, 9], {"labels": 2, "validation": 99}, "data.validation: 99 asks for 99 of 18 .*; give a smaller"),
        ([99, 1], {"labels": "all", "validation": 0.1}, "class 1 has 1 .* 5 for validation and 1 .*; lower"),
        ([9, 9], {"label_indices": (0, 18, 99)}, "indices: 18, 99 out of range; wanted 0 to 17.*; correct"),
        ([9, 9], {"label_indices": (0, 2**70)}, "indices: .* is out of range; wanted 0 to 17"),
        (
            [9, 9],
            {"label_indices": (*range(18), 4)},
            "indices: 4 given more than once; wanted each once; remove",
        ),
        ([99, 1], {"label_indices": ()}, "none of the 0 images is of class class 0, class 1; wanted .*; add"),
        (
            [9, 9],
            {"labels": "all", "labeled_in_unlabeled": False},
            "leaves no unlabeled image; set data.labeled",
        ),
    ],
)
def test_a_split_that_cannot_be_drawn_says_why(
    counts: list[int], config: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        draw(pool_of(counts), Data(**config))  # type: ignore[arg-type]


def make_folder(tmp: Path, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    for name in ("labeled/ant", "labeled/bee", "unlabeled"):
        for number in range(4):
            file = tmp / "set" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (9, 10), dtype=np.uint8)).save(file)
    return Data(source="folder", path=str(tmp / "set"), root=str(tmp / "root"), labels=2, validation=2)


def same(one: Dataset, other: Dataset) -> bool:
    return all(
        np.array_equal(getattr(one, name).images, getattr(other, name).images)
        for name in ("labeled", "unlabeled", "validation")
    )


def test_mean_and_std_are_those_of_all_training_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    some = rng.integers(0, 256, (2100, 3, 8, 8), dtype=np.uint8)
    some[:, 1] = 51
    found, exact = stats(some), some.astype(np.float64) / 255
    assert found.mean == pytest.approx(exact.mean((0, 2, 3)), rel=1e-12)
    assert found.std == pytest.approx([exact[:, 0].std(), 1.0, exact[:, 2].std()], rel=1e-9)
    one, other = (open_dataset(make_folder(tmp_path).model_copy(update={"labels": n})) for n in (2, 4))
    assert (one.mean, one.std) == (other.mean, other.std)


def filled(mode: str, colour: object) -> Image.Image:
    return Image.new(mode, (8, 8), colour)  # type: ignore[arg-type]


PALETTE = filled("RGB", (10, 20, 30)).quantize(4)
SEE_THROUGH = filled("P", 0)
SEE_THROUGH.putpalette([200, 100, 50])
SEE_THROUGH.info["transparency"] = 0


@pytest.mark.parametrize(
    ("image", "mode", "pixel"),
    [
        (filled("L", 77), "L", 77),
        (filled("1", 1), "L", 255),
        (filled("I;16", 0x1234), "L", 0x12),
        (filled("I", 70_000), "L", 255),
        (filled("LA", (200, 0)), "L", 0),
        (filled("RGB", (1, 2, 3)), "RGB", (1, 2, 3)),
        (filled("RGBA", (255, 100, 10, 0)), "RGB", (0, 0, 0)),
        (filled("RGBA", (250, 100, 10, 255)), "RGB", (250, 100, 10)),
        (filled("CMYK", (0, 0, 0, 255)), "RGB", (0, 0, 0)),
        (PALETTE, "RGB", (10, 20, 30)),
        (SEE_THROUGH, "RGB", (0, 0, 0)),
    ],
    ids=lambda value: value.mode if isinstance(value, Image.Image) else None,
)
def test_any_kind_of_image_becomes_grey_or_rgb(image: Image.Image, mode: str, pixel: object) -> None:
    made = decode.plain(image)
    assert (made.mode, made.getpixel((3, 3))) == (mode, pixel)


@pytest.mark.parametrize("at_once", [1, 512])
def test_one_colour_image_makes_all_sets_rgb_unless_grey_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("cbe.data.sources.folder.AT_ONCE", at_once)
    config = make_folder(tmp_path)
    Image.new("RGB", (10, 9), (255, 0, 0)).save(tmp_path / "set/unlabeled/3.png")
    found = open_dataset(config.model_copy(update={"labeled_in_unlabeled": False}))
    assert found.labeled.images.shape == (2, 3, 9, 10)
    assert (found.labeled.images[:, 0] == found.labeled.images[:, 2]).all()
    assert (found.unlabeled.images[3, :, 0, 0] == (255, 0, 0)).all()
    assert open_dataset(config.model_copy(update={"channels": 1})).unlabeled.images.shape[1] == 1


def test_an_animation_gives_its_first_frame_and_a_camera_rotation_is_applied(tmp_path: Path) -> None:
    config = make_folder(tmp_path)
    frames = [Image.new("L", (10, 9), value) for value in (40, 200)]
    frames[0].save(tmp_path / "set/unlabeled/a.gif", save_all=True, append_images=frames[1:])
    turned, about = Image.new("L", (9, 10)), Image.Exif()
    turned.paste(255, (0, 0, 9, 5))
    about[0x0112] = 6  # turn by 90 degrees to the right
    turned.save(tmp_path / "set/unlabeled/b.jpg", exif=about, quality=100)
    config = config.model_copy(update={"channels": 1, "labeled_in_unlabeled": False})
    unlabeled = open_dataset(config).unlabeled.images
    assert (unlabeled[4] == 40).all()
    assert unlabeled[5, 0, 4, 0] < 10 and unlabeled[5, 0, 4, -1] > 245


def test_images_are_reduced_without_aliasing() -> None:
    stripes = np.zeros((1, 1, 32, 32), np.uint8)
    stripes[..., ::2] = 255
    small = decode.conform(stripes, Data(size=8))
    assert small.shape == (1, 1, 8, 8) and np.ptp(small[..., 1:-1]) < 40 and abs(small.mean() - 127.5) < 10


def _folder_of_grey_squares(root: Path) -> Path:
    for name in ("cat", "dog"):
        (root / "labeled" / name).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (8, 8), 40 * number).save(root / "labeled" / name / f"{number}.png")
    (root / "unlabeled").mkdir()
    return root


def test_a_folder_of_unlabeled_files_without_an_image_is_refused(tmp_path: Path) -> None:
    folder = _folder_of_grey_squares(tmp_path / "pets")
    (folder / "unlabeled" / "1.avif").write_bytes(b"something else")
    config = Data(source="folder", path=str(folder), root=str(tmp_path), labels="all", validation=2)
    with pytest.raises(DataError, match="no image among them"):
        open_dataset(config)


def test_truth_of_the_labeled_images_alone_does_not_pass_for_that_of_the_unlabeled(tmp_path: Path) -> None:
    folder = _folder_of_grey_squares(tmp_path / "pets")
    Image.new("L", (8, 8)).save(folder / "unlabeled" / "1.png")
    config = Data(source="folder", path=str(folder), root=str(tmp_path), labels="all", validation=2)
    found = open_dataset(config)
    assert len(found.unlabeled) == 1 + len(found.labeled)
    assert set(found.unlabeled.labels.tolist()) == {-1}


def some_images(count: int, seed: int) -> ImageSet:
    rng = np.random.default_rng(seed)
    return ImageSet(rng.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8), rng.integers(0, 9, count))


@given(st.lists(st.integers(0, 6), min_size=1), st.lists(st.integers(0, 4), min_size=1), st.randoms())
def test_sets_made_of_others_have_their_images_and_copy_none(
    some: list[int], others: list[int], random: Random
) -> None:
    first, second = some_images(7, 1), some_images(5, 2)
    part, other = first.take(np.array(some)), second.take(np.array(others))
    both = joined(part, other)
    order = np.array(random.choices(range(len(both)), k=9))
    found = both.take(order)
    pixels = np.concatenate([first.base[some], second.base[others]])
    labels = np.concatenate([first.labels[some], second.labels[others]])
    assert found.shape == (9, 3, 8, 8) and len(both) == len(pixels)
    for made, wanted in ((both, slice(None)), (found, order)):
        np.testing.assert_array_equal(made.images, pixels[wanted])
        np.testing.assert_array_equal(made.labels, labels[wanted])
    assert part.base is first.base and found.bases == (first.base, second.base)


def test_sets_of_other_shapes_and_other_numbers_of_labels_are_refused() -> None:
    grey, colour = ImageSet(np.zeros((2, 1, 8, 8), np.uint8), np.arange(2)), some_images(3, 0)
    with pytest.raises(ValueError, match="wanted one shape"):
        joined(grey, colour)
    with pytest.raises(ValueError, match="only sets of one array each"):
        joined(joined(grey, grey), grey)
    with pytest.raises(ValueError, match=r"labels are int64 \(2,\); wanted int64 \(3,\)"):
        replace(colour.take(np.arange(3)), labels=np.arange(2))


def test_images_of_a_source_with_its_own_unlabeled_ones_are_not_copied(tmp_path: Path) -> None:
    config = make_folder(tmp_path)
    pool, measured = open_pool(config)
    found = open_dataset(config, pool=(pool, measured))
    assert pool.unlabeled is not None
    assert found.unlabeled.bases == (pool.unlabeled.base, pool.train.base)
    assert found.validation.base is pool.train.base
    eager = np.concatenate([pool.unlabeled.images, pool.train.images[found.split.labeled]])
    np.testing.assert_array_equal(found.unlabeled.images, eager)
    shutil.rmtree(tmp_path / "set")  # who has the pool needs no source
    assert same(found, open_dataset(config, pool=(pool, measured)))


def test_a_pool_of_memory_maps_is_handed_over_as_shared_buffers(tmp_path: Path) -> None:
    config = make_folder(tmp_path)
    open_pool(config)
    pool, measured = open_pool(config)
    assert isinstance(pool.train.images, np.memmap)
    buffers: list[pickle.PickleBuffer] = []
    written = pickle.dumps((pool, measured), protocol=5, buffer_callback=buffers.append)
    shared = [memoryview(buffer.raw()).toreadonly() for buffer in buffers]
    moved, moments = pickle.loads(written, buffers=shared)
    assert len(buffers) == 4 and not moved.train.images.flags.writeable
    assert np.shares_memory(moved.train.images, np.frombuffer(shared[0], np.uint8))
    assert same(open_dataset(config), open_dataset(config, pool=(moved, moments)))
