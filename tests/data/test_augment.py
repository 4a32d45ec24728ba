"""Augmentation against an independent reference in Pillow and numpy, and the statistics of its draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_digits, load_sample_image

from cbe.data.augment import RECIPES, Augmenter, Op, Recipe, StrongDraw, WeakDraw, normalize
from cbe.errors import DataError

AFFINE, NEAREST = Image.Transform.AFFINE, Image.Resampling.NEAREST
SIZES = [(8, 8), (28, 28), (32, 32), (33, 47), (128, 128)]


def affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, AFFINE, coefficients, NEAREST)


PILLOW: dict[Op, Callable[[Image.Image, float], Image.Image]] = {
    Op.ROTATE: lambda image, v: image.rotate(v, NEAREST),
    Op.SHEAR_X: lambda image, v: affine(image, 1, v, 0, 0, 1, 0),
    Op.SHEAR_Y: lambda image, v: affine(image, 1, 0, 0, v, 1, 0),
    Op.TRANSLATE_X: lambda image, v: affine(image, 1, 0, v, 0, 1, 0),
    Op.TRANSLATE_Y: lambda image, v: affine(image, 1, 0, 0, 0, 1, v),
    Op.AUTOCONTRAST: lambda image, v: ImageOps.autocontrast(image),
    Op.EQUALIZE: lambda image, v: ImageOps.equalize(image),
    Op.POSTERIZE: lambda image, v: ImageOps.posterize(image, int(v)),
    Op.SOLARIZE: lambda image, v: ImageOps.solarize(image, int(v)),
    Op.BRIGHTNESS: lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    Op.CONTRAST: lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    Op.COLOR: lambda image, v: ImageEnhance.Color(image).enhance(v),
    Op.SHARPNESS: lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    Op.IDENTITY: lambda image, v: image,
}
FACTORS = (0.05, 0.14, 0.5, 0.77, 0.95)
MAGNITUDES: dict[Op, tuple[float, ...]] = {
    Op.ROTATE: (-30, -17.3, -3, 0, 9, 29.9),
    Op.SHEAR_X: (-0.3, -0.11, 0, 0.06, 0.27),
    Op.SHEAR_Y: (-0.3, -0.11, 0, 0.06, 0.27),
    Op.TRANSLATE_X: (-9, -1, 0, 2, 8),
    Op.TRANSLATE_Y: (-9, -1, 0, 2, 8),
    Op.AUTOCONTRAST: (0,),
    Op.EQUALIZE: (0,),
    Op.POSTERIZE: (4, 5, 6, 7, 8),
    Op.SOLARIZE: (0, 1, 26, 128, 255, 256),
    Op.BRIGHTNESS: FACTORS,
    Op.CONTRAST: FACTORS,
    Op.COLOR: FACTORS,
    Op.SHARPNESS: FACTORS,
    Op.IDENTITY: (0,),
}


def tiles(height: int, width: int, channels: int, count: int = 24) -> torch.Tensor:
    """Pieces of a photograph, and two that are hard for histograms: one level, two neighbouring levels."""
    photograph = load_sample_image("china.jpg")
    across = photograph.shape[1] // width
    down = photograph.shape[0] // height
    chosen = np.linspace(0, across * down - 1, count).astype(int)
    cut = [
        photograph[y * height : (y + 1) * height, x * width : (x + 1) * width]
        for y, x in (divmod(index, across) for index in chosen)
    ]
    images = torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).contiguous()
    images[0] = 77
    images[1] = 200
    images[1, :, : height // 2] = 201
    return images if channels == 3 else images[:, 1:2].contiguous()


def digits() -> torch.Tensor:
    small = torch.from_numpy(load_digits().images[:40]).mul(15.9375).to(torch.uint8)
    return small[:, None].repeat_interleave(4, 2).repeat_interleave(4, 3)


def as_pillow(image: torch.Tensor) -> Image.Image:
    planes = image.numpy()
    return Image.fromarray(planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0))


def as_tensor(image: Image.Image) -> torch.Tensor:
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())


def augmenter(
    recipe: str = "fixmatch", *, flip: bool = True, height: int = 32, width: int = 32, seed: int = 0
) -> Augmenter:
    generator = torch.Generator().manual_seed(seed)
    return Augmenter(recipe, flip=flip, height=height, width=width, generator=generator)  # type: ignore[arg-type]


def still(n: int) -> WeakDraw:
    """A weak draw that moves nothing."""
    zero = torch.zeros(n, dtype=torch.long)
    return WeakDraw(torch.zeros(n, dtype=torch.bool), zero, zero)


def only(op: torch.Tensor, magnitude: torch.Tensor) -> StrongDraw:
    """A strong draw of nothing but operations [N, layers]."""
    return StrongDraw(still(len(op)), op, magnitude.double(), torch.zeros(len(op), 4, dtype=torch.long))


def by_pillow(images: torch.Tensor, draw: StrongDraw) -> torch.Tensor:
    out = []
    for image, ops, magnitudes in zip(images, draw.op.tolist(), draw.magnitude.tolist(), strict=True):
        picture = as_pillow(image)
        for op, magnitude in zip(ops, magnitudes, strict=True):
            picture = PILLOW[Op(op)](picture, magnitude)
        out.append(as_tensor(picture))
    return torch.stack(out)


def by_numpy(image: torch.Tensor, flip: bool, dy: int, dx: int) -> torch.Tensor:
    """Flip, reflect pad and crop."""
    pixels = image.numpy()[:, :, ::-1] if flip else image.numpy()
    _, height, width = pixels.shape
    up, left = height // 8, width // 8
    padded = np.pad(pixels, ((0, 0), (up, up), (left, left)), mode="reflect")
    return torch.from_numpy(padded[:, up + dy : up + dy + height, left + dx : left + dx + width].copy())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("op", "magnitude"),
    [pytest.param(op, v, id=f"{op.name.lower()} {v}") for op, values in MAGNITUDES.items() for v in values],
)
def test_each_operation_equals_pillows(op: Op, magnitude: float, channels: int) -> None:
    for images in (tiles(32, 32, channels), tiles(33, 47, channels), digits()[:, [0] * channels]):
        n, _, height, width = images.shape
        draw = only(torch.full((n, 1), op), torch.full((n, 1), magnitude))
        got = augmenter(height=height, width=width).strong(images, draw)
        wanted = by_pillow(images, draw)
        assert torch.equal(got, wanted), (got.int() - wanted.int()).abs().float().mean()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_drawn_batch_equals_pillows_pipeline(recipe: str, channels: int) -> None:
    images = tiles(32, 32, channels, count=120)
    made = augmenter(recipe, seed=3)
    draw = made.draw_strong(len(images))
    weak = torch.stack(
        [
            by_numpy(image, flip, dy, dx)
            for image, flip, dy, dx in zip(
                images, draw.weak.flip.tolist(), draw.weak.dy.tolist(), draw.weak.dx.tolist(), strict=True
            )
        ]
    )
    wanted = by_pillow(weak, draw)
    for image, (top, left, bottom, right) in zip(wanted, draw.box.tolist(), strict=True):
        image[:, top:bottom, left:right] = 127
    assert torch.equal(made.strong(images, draw), wanted)


def test_two_samples_of_a_batch_draw_different_operations() -> None:
    draw = augmenter().draw_strong(64)
    assert len(draw.op[:, 0].unique()) > 8
    images = tiles(32, 32, 3)[5:6].expand(64, -1, -1, -1).contiguous()
    strong = augmenter().strong(images, only(draw.op, draw.magnitude))
    assert len(strong.flatten(1).unique(dim=0)) > 20


def within(count: int, n: int, share: float) -> bool:
    """Five standard deviations of the binomial."""
    return abs(count - n * share) <= 5 * math.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("recipe", RECIPES)
def test_operations_are_drawn_evenly_and_with_the_recipes_probability(recipe: str) -> None:
    n = 20_000
    draw = augmenter(recipe).draw_strong(n)
    probability = {"fixmatch": 0.5, "usb": 1.0}[recipe]
    for layer in draw.op.unbind(1):
        counts = torch.bincount(layer, minlength=14).tolist()
        for op in Op:
            share = probability / 14 + (1 - probability) * (op == Op.IDENTITY)
            assert within(counts[op], n, share), (op, counts[op])


def test_layers_are_drawn_independently() -> None:
    draw = augmenter().draw_strong(20_000)
    applied = draw.op != Op.IDENTITY
    share = 0.5 * 13 / 14
    assert within(int(applied.all(1).sum()), 20_000, share**2)


def test_fixmatch_draws_nine_levels_of_every_parameter() -> None:
    draw = augmenter("fixmatch", height=32, width=48).draw_strong(30_000)
    levels = range(1, 10)
    factors = {0.9 * v / 10 + 0.05 for v in levels}
    either = (-1, 1)
    wanted = {
        Op.ROTATE: {s * 30 * v / 10 for v in levels for s in either},
        Op.SHEAR_X: {s * (0.3 * v / 10) for v in levels for s in either},
        Op.SHEAR_Y: {s * (0.3 * v / 10) for v in levels for s in either},
        Op.TRANSLATE_X: {float(s * int(0.3 * v / 10 * 48)) for v in levels for s in either},
        Op.TRANSLATE_Y: {float(s * int(0.3 * v / 10 * 32)) for v in levels for s in either},
        Op.POSTERIZE: {float(int(4 * v / 10) + 4) for v in levels},
        Op.SOLARIZE: {float(256 - int(256 * v / 10)) for v in levels},
        **dict.fromkeys((Op.BRIGHTNESS, Op.CONTRAST, Op.COLOR, Op.SHARPNESS), factors),
    }
    for op, values in wanted.items():
        assert set(draw.magnitude[draw.op == op].tolist()) == values, op


def test_usb_always_applies_three_operations_with_magnitudes_in_range() -> None:
    draw = augmenter("usb", height=32, width=48).draw_strong(30_000)
    assert draw.op.shape == (30_000, 3)
    ranges = {
        Op.ROTATE: (-30, 30),
        Op.SHEAR_X: (-0.3, 0.3),
        Op.SHEAR_Y: (-0.3, 0.3),
        Op.TRANSLATE_X: (-14, 14),
        Op.TRANSLATE_Y: (-10, 10),
        Op.SOLARIZE: (0, 256),
        **dict.fromkeys((Op.BRIGHTNESS, Op.CONTRAST, Op.COLOR, Op.SHARPNESS), (0.05, 0.95)),
    }
    for op, (low, high) in ranges.items():
        drawn = draw.magnitude[draw.op == op]
        assert low <= drawn.min() < low + 0.01 * (high - low) + (op == Op.SOLARIZE)
        assert high - 0.01 * (high - low) < drawn.max() <= high
        assert abs(drawn.mean() - (low + high) / 2) < 0.03 * (high - low)
    assert set(draw.magnitude[draw.op == Op.POSTERIZE].tolist()) == {4, 5, 6, 7}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_draw_is_reproduced_from_the_generators_saved_state(recipe: str) -> None:
    images = tiles(32, 32, 3)
    made = augmenter(recipe)
    made.draw_strong(5)
    state = made.generator.get_state()
    first = made.strong(images, made.draw_strong(len(images)))
    second = made.strong(images, made.draw_strong(len(images)))
    assert not torch.equal(first, second)
    resumed = augmenter(recipe, seed=99)
    resumed.generator.set_state(state)
    assert torch.equal(resumed.strong(images, resumed.draw_strong(len(images))), first)
    assert torch.equal(resumed.strong(images, resumed.draw_strong(len(images))), second)


@pytest.mark.parametrize("recipe", RECIPES)
def test_parts_of_a_draw_applied_to_parts_of_a_batch_interleave_to_the_whole(recipe: str) -> None:
    images = tiles(32, 32, 3, count=23)
    made = augmenter(recipe)
    weak, strong = made.draw_weak(23), made.draw_strong(23)
    whole_weak, whole_strong = made.weak(images, weak), made.strong(images, strong)
    for rank in range(2):
        share = images[rank::2]
        assert len(strong.part(rank, 2)) == len(share)
        assert torch.equal(made.weak(share, weak.part(rank, 2)), whole_weak[rank::2])
        assert torch.equal(made.strong(share, strong.part(rank, 2)), whole_strong[rank::2])


def test_turning_flips_off_changes_nothing_else_in_a_draw() -> None:
    flipping, straight = augmenter(flip=True).draw_strong(200), augmenter(flip=False).draw_strong(200)
    assert torch.equal(flipping.op, straight.op) and torch.equal(flipping.box, straight.box)
    assert not straight.weak.flip.any()
    assert within(int(augmenter().draw_weak(20_000).flip.sum()), 20_000, 0.5)


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("flip", [False, True])
def test_every_shift_equals_numpys_reflect_pad_and_crop(height: int, width: int, flip: bool) -> None:
    rng = np.random.default_rng(0)
    up, left = height // 8, width // 8
    moves = [(dy, dx) for dy in range(-up, up + 1) for dx in range(-left, left + 1)]
    if len(moves) > 150:  # corners and a sample of the rest
        moves = [*moves[:: len(moves) // 100], (-up, -left), (up, left), (-up, left), (up, -left)]
    n = len(moves)
    images = torch.from_numpy(rng.integers(0, 256, (n, 3, height, width), dtype=np.uint8))
    dy, dx = torch.tensor(moves).unbind(1)
    mixed = torch.from_numpy(rng.random(n) < 0.5) if flip else torch.zeros(n, dtype=torch.bool)
    got = augmenter(height=height, width=width).weak(images, WeakDraw(mixed, dy, dx))
    for image, result, flipped, (down, right) in zip(images, got, mixed.tolist(), moves, strict=True):
        assert torch.equal(result, by_numpy(image, flipped, down, right))


def test_shifts_are_uniform_over_an_eighth_of_the_side_in_each_direction() -> None:
    draw = augmenter(height=32, width=48).draw_weak(20_000)
    for moved, reach in ((draw.dy, 4), (draw.dx, 6)):
        counts = torch.bincount(moved + reach).tolist()
        assert len(counts) == 2 * reach + 1
        assert all(within(count, 20_000, 1 / len(counts)) for count in counts)


def test_cutout_fills_its_box_with_127_and_nothing_else() -> None:
    images = tiles(32, 32, 3)
    images[images == 127] = 126
    made = augmenter()
    box = made.draw_strong(len(images)).box
    box[0] = torch.tensor([0, 0, 8, 5])
    box[1] = torch.tensor([20, 24, 32, 32])
    box[2] = 0
    nothing = torch.full((len(images), 2), Op.IDENTITY)
    got = made.strong(images, StrongDraw(still(len(images)), nothing, torch.zeros(len(images), 2), box))
    for image, result, (top, left, bottom, right) in zip(images, got, box.tolist(), strict=True):
        assert torch.all(result[:, top:bottom, left:right] == 127)
        assert int((result == 127).sum()) == 3 * (bottom - top) * (right - left)
        assert torch.equal(result[result != 127], image[result != 127])


def test_fixmatchs_box_is_half_the_side_unless_the_border_clips_it() -> None:
    box = augmenter(height=32, width=48).draw_strong(20_000).box
    for first, last, side in ((box[:, 0], box[:, 2], 32), (box[:, 1], box[:, 3], 48)):
        extent = last - first
        assert first.min() == 0 and last.max() == side
        assert extent.min() >= side // 4 and extent.max() == side // 2
        inside = (first > 0) & (last < side)
        assert torch.all(extent[inside] == side // 2)
        # The centre is uniform: one box in two loses something to a border.
        assert within(int((extent < side // 2).sum()), 20_000, (side // 2 - 1) / side)
        assert within(int((last < side // 2).sum()), 20_000, 0.25)


def test_usbs_box_is_at_most_half_the_side() -> None:
    box = augmenter("usb", height=64, width=64).draw_strong(20_000).box
    extent = (box[:, 2:] - box[:, :2])[((box[:, :2] > 0) & (box[:, 2:] < 64)).all(1)]
    assert torch.equal(extent[:, 0], extent[:, 1])
    assert extent.min() == 0 and extent.max() == 31


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_views_keep_shape_and_type_and_leave_their_input_alone(
    recipe: str, channels: int, height: int, width: int
) -> None:
    images = tiles(height, width, channels, count=12)
    before = images.clone()
    made = augmenter(recipe, height=height, width=width)
    for view in (made.weak(images, made.draw_weak(12)), made.strong(images, made.draw_strong(12))):
        assert view.dtype == torch.uint8 and view.shape == images.shape
        assert not torch.equal(view, images)
        assert view.data_ptr() != images.data_ptr()
    assert torch.equal(images, before)


def test_images_that_are_not_contiguous_give_the_same_views() -> None:
    images = tiles(32, 32, 3)
    made = augmenter()
    draw = made.draw_strong(len(images))
    strided = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(made.strong(strided, draw), made.strong(images, draw))
    assert torch.equal(made.weak(strided, draw.weak), made.weak(images, draw.weak))


@pytest.mark.parametrize("recipe", RECIPES)
def test_nothing_is_read_back_from_the_device(recipe: str) -> None:
    # Tensors on `meta` have no values: whatever would wait for a device's values raises there.
    images = torch.empty(64, 3, 32, 32, dtype=torch.uint8, device="meta")
    made = augmenter(recipe)
    for view in (made.weak(images, made.draw_weak(64)), made.strong(images, made.draw_strong(64))):
        assert view.is_meta and view.shape == images.shape
        assert normalize(view, [0.5] * 3, [0.2] * 3).shape == images.shape


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_empty_share_of_a_batch_gives_no_views(recipe: str) -> None:
    made = augmenter(recipe)
    draw = made.draw_strong(1).part(1, 2)
    none = torch.zeros(0, 3, 32, 32, dtype=torch.uint8)
    assert made.strong(none, draw).shape == none.shape
    assert made.weak(none, draw.weak).shape == none.shape


def test_images_of_another_size_or_number_are_refused() -> None:
    made = augmenter()
    for images in (tiles(28, 28, 3), tiles(32, 32, 3, count=5), tiles(32, 32, 3).float()):
        with pytest.raises(DataError, match="24 images of 32×32"):
            made.weak(images, made.draw_weak(24))


def test_a_third_recipe_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    mild = Recipe(layers=1, probability=1.0, levels=5, cutout=(0.0, 0.0), whole=np.trunc)
    monkeypatch.setitem(RECIPES, "mild", mild)
    draw = augmenter("mild").draw_strong(500)
    assert draw.op.shape == (500, 1)
    assert set(draw.magnitude[draw.op == Op.ROTATE].abs().tolist()) == {6, 12, 18, 24}
    assert torch.equal(draw.box[:, :2], draw.box[:, 2:])


def test_normalizing_subtracts_the_mean_and_divides_by_the_deviation() -> None:
    images = tiles(32, 32, 3)
    mean, std = [0.49, 0.48, 0.44], [0.2, 0.3, 0.4]
    per_channel = (torch.tensor(x)[:, None, None] for x in (mean, std))
    m, s = per_channel
    got = normalize(images, mean, std)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, (images / 255 - m) / s, atol=2e-6, rtol=1e-6)
    assert torch.equal(normalize(images, torch.tensor(mean), torch.tensor(std)), got)
