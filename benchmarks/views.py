"""Views a second, weak and strong and normalised: this package against what others run on the same two cores.

    python benchmarks/views.py --json out.json          about 30 s on a quiet machine

Against (a) Pillow sample by sample, as USB and kekmodel/FixMatch-pytorch run it: torchvision's flip and crop
on PIL images, RandAugment with PIL, ToTensor and Normalize in a DataLoader with two workers; and (b)
torchvision's v2 transforms on uint8 tensors, sample by sample in the same DataLoader, since on a batch they
draw one operation for all. v2's RandAugment has a pool and magnitudes of its own, so (b) is the same kind of
work, not the same work. Workers are started and warmed up beforehand; rounds alternate, and each starts and
ends with idle workers. On a machine that is busy otherwise, two threads wait for each other at each of our
many short steps, and one thread is faster; hence both are given, and `load_before`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import PIL
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from cbe.data.augment import Augmenter, normalize
from cbe.data.vision import transforms, v2

SIDE = 32
SAMPLES = 224  # μB of the paper: 7 · 32; each gives a weak and a strong view
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
WORKERS = 2
BATCHES = 8  # a round of the worker pipelines; a multiple of the workers
OUR_BATCHES = 24  # ours are shorter, so more of them

View = Callable[[Any], Tensor]
Pairs = DataLoader[tuple[Tensor, Tensor]]


def pictures(count: int = 2048) -> Tensor:
    """Random crops of a photograph, uint8 [count, 3, 32, 32]."""
    photograph = load_sample_image("china.jpg")
    rng = np.random.default_rng(0)
    down = rng.integers(0, photograph.shape[0] - SIDE, count)
    across = rng.integers(0, photograph.shape[1] - SIDE, count)
    cut = [photograph[y : y + SIDE, x : x + SIDE] for y, x in zip(down, across, strict=True)]
    return torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).contiguous()


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


def _signed(value: float) -> float:
    return value if random.random() < 0.5 else -value


# The 14 operations at strength s, 0..1; see METHOD, "Training recipe".
POOL: tuple[Callable[[Image.Image, float], Image.Image], ...] = (
    lambda image, s: ImageOps.autocontrast(image),
    lambda image, s: ImageEnhance.Brightness(image).enhance(0.05 + 0.9 * s),
    lambda image, s: ImageEnhance.Color(image).enhance(0.05 + 0.9 * s),
    lambda image, s: ImageEnhance.Contrast(image).enhance(0.05 + 0.9 * s),
    lambda image, s: ImageOps.equalize(image),
    lambda image, s: image,
    lambda image, s: ImageOps.posterize(image, int(4 * s) + 4),
    lambda image, s: image.rotate(_signed(30 * s)),
    lambda image, s: ImageEnhance.Sharpness(image).enhance(0.05 + 0.9 * s),
    lambda image, s: _affine(image, 1, _signed(0.3 * s), 0, 0, 1, 0),
    lambda image, s: _affine(image, 1, 0, 0, _signed(0.3 * s), 1, 0),
    lambda image, s: ImageOps.solarize(image, 256 - int(256 * s)),
    lambda image, s: _affine(image, 1, 0, int(_signed(0.3 * s) * image.size[0]), 0, 1, 0),
    lambda image, s: _affine(image, 1, 0, 0, 0, 1, int(_signed(0.3 * s) * image.size[1])),
)


def _cutout(image: Image.Image, share: float) -> Image.Image:
    width, height = image.size
    size = share * width
    x = max(0.0, random.uniform(0, width) - size / 2)
    y = max(0.0, random.uniform(0, height) - size / 2)
    image = image.copy()
    corners = (x, y, min(width, x + size), min(height, y + size))
    ImageDraw.Draw(image).rectangle(corners, (127, 127, 127))
    return image


def _fixmatch(image: Image.Image) -> Image.Image:
    for op in random.choices(POOL, k=2):
        level = random.randint(1, 9)
        if random.random() < 0.5:
            image = op(image, level / 10)
    return _cutout(image, 0.5)


def _usb(image: Image.Image) -> Image.Image:
    for op in random.choices(POOL, k=3):
        image = op(image, random.random())
    return _cutout(image, random.random() * 0.5)


def pillow_views(recipe: str) -> tuple[View, View]:
    moved = [
        transforms.RandomHorizontalFlip(),
        transforms.RandomCrop(SIDE, padding=SIDE // 8, padding_mode="reflect"),
    ]
    finish = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    strong = {"fixmatch": _fixmatch, "usb": _usb}[recipe]
    return transforms.Compose([*moved, *finish]), transforms.Compose([*moved, strong, *finish])


def torchvision_views(recipe: str) -> tuple[View, View]:
    moved = [v2.RandomHorizontalFlip(), v2.RandomCrop(SIDE, padding=SIDE // 8, padding_mode="reflect")]
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    strong = v2.RandAugment(num_ops={"fixmatch": 2, "usb": 3}[recipe])
    cutout = v2.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0), value=127)
    return v2.Compose([*moved, *finish]), v2.Compose([*moved, strong, cutout, *finish])


class TwoViews(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, images: Tensor, views: tuple[View, View], *, as_pillow: bool) -> None:
        self.images = images
        self.arrays = images.permute(0, 2, 3, 1).contiguous().numpy() if as_pillow else None
        self.views = views

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index] if self.arrays is None else Image.fromarray(self.arrays[index])
        weak, strong = self.views
        return weak(image), strong(image)


class Draws(Sampler[int]):
    """Sample numbers of one round, drawn with replacement."""

    def __init__(self, images: int, count: int) -> None:
        self.images = images
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randint(self.images, (self.count,)).tolist())


def _loader(images: Tensor, views: tuple[View, View], *, as_pillow: bool) -> Pairs:
    return DataLoader(
        TwoViews(images, views, as_pillow=as_pillow),
        batch_size=SAMPLES,
        sampler=Draws(len(images), BATCHES * SAMPLES),
        num_workers=WORKERS,
        persistent_workers=True,
    )


def _run_loader(loader: Pairs) -> int:
    return sum(len(weak) + len(strong) for weak, strong in loader)


def _run_ours(images: Tensor, augmenter: Augmenter, threads: int) -> int:
    torch.set_num_threads(threads)
    made = 0
    for _ in range(OUR_BATCHES):
        batch = images.index_select(0, torch.randint(len(images), (SAMPLES,)))
        weak = normalize(augmenter.weak(batch, augmenter.draw_weak(SAMPLES)), MEAN, STD)
        strong = normalize(augmenter.strong(batch, augmenter.draw_strong(SAMPLES)), MEAN, STD)
        made += len(weak) + len(strong)
    return made


def _rate(run: Callable[[], int]) -> float:
    start = time.perf_counter()
    return run() / (time.perf_counter() - start)


def measure(rounds: int = 7, recipe: str = "fixmatch") -> dict[str, Any]:
    """Median views a second of each, and how many times faster ours are, with the spread over rounds."""
    load = os.getloadavg()[0]
    images = pictures()
    generator = torch.Generator().manual_seed(0)
    augmenter = Augmenter(recipe, flip=True, height=SIDE, width=SIDE, generator=generator)  # type: ignore[arg-type]
    pillow = _loader(images, pillow_views(recipe), as_pillow=True)
    vision = _loader(images, torchvision_views(recipe), as_pillow=False)
    contenders = {
        "ours": partial(_run_ours, images, augmenter, WORKERS),
        "ours_one_thread": partial(_run_ours, images, augmenter, 1),
        "pillow": partial(_run_loader, pillow),
        "torchvision": partial(_run_loader, vision),
    }
    threads = torch.get_num_threads()
    try:
        for run in contenders.values():
            run()
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, run in contenders.items():
                rates[name].append(_rate(run))
    finally:
        torch.set_num_threads(threads)
    result: dict[str, Any] = {f"{name}_views_per_s": median(values) for name, values in rates.items()}
    for other in ("pillow", "torchvision"):
        ratios = [a / b for a, b in zip(rates["ours"], rates[other], strict=True)]
        result[f"times_{other}"] = median(ratios)
        result[f"times_{other}_min"], result[f"times_{other}_max"] = min(ratios), max(ratios)
    return result | {
        "recipe": recipe,
        "rounds": rounds,
        "cores": os.cpu_count(),
        "load_before": load,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pillow": PIL.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Views a second, ours against Pillow and torchvision.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--recipe", choices=("fixmatch", "usb"), default="fixmatch")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    found = measure(options.rounds, options.recipe)
    print(f"{'pipeline':<34}{'views/s':>9}   ours is … times as fast, median (min..max)")
    for ours, title in (("ours", "ours, two threads"), ("ours_one_thread", "ours, one thread")):
        print(f"{title:<34}{found[f'{ours}_views_per_s']:>9,.0f}")
    for other, title in (("pillow", "Pillow, two workers"), ("torchvision", "torchvision v2, two workers")):
        spread = f"{found[f'times_{other}_min']:.1f}..{found[f'times_{other}_max']:.1f}"
        print(f"{title:<34}{found[f'{other}_views_per_s']:>9,.0f}   {found[f'times_{other}']:.1f} ({spread})")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
