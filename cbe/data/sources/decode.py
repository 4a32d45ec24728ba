"""Image files to arrays of one shape.

What is not plain grey or RGB is made so: alpha and transparent colours are composed onto black, palettes,
CMYK and the like become RGB, 16-bit grey keeps its high byte, an animation gives its first frame, and the
rotation a camera noted is applied.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from cbe.data.images import Images
from cbe.errors import DataError
from cbe.spec import Data

SMALLEST, LARGEST = 8, 128
AT_ONCE = 512
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF", "PPM")  # not EPS, which would start Ghostscript
_WORKERS = min(4, os.cpu_count() or 1)  # Pillow holds the interpreter's lock for much of a small image
_MODES = {1: "L", 3: "RGB"}

Item = tuple[str, Path | bytes]  # how messages name the image; its file or its bytes
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Decoder:
    """Decodes the sets of one source; the first image says the shape that all others must have."""

    def __init__(self, config: Data) -> None:
        self._size, self._channels = config.size, config.channels
        self._first: tuple[str, tuple[int, int]] | None = None

    def decode(self, chunks: Iterable[Sequence[Item]], count: int) -> Images:
        """All images of a set, `count` in number; RGB if one of them is, unless the config says."""
        chunks = iter(chunks)
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # refused, as other bad files are
            first = self._chunk(next(chunks))  # before the threads start, because it sets the shape
            out = np.empty((count, *first.shape[1:]), np.uint8)
            at = 0
            for part in chain([first], in_order(self._chunk, chunks)):
                if part.shape[1] > out.shape[1]:
                    out = rgb(out)
                out[at : at + len(part)] = part
                at += len(part)
        return out

    def _chunk(self, items: Sequence[Item]) -> Images:
        return np.concatenate(same_channels([self._one(name, content) for name, content in items]))

    def _one(self, name: str, content: Path | bytes) -> Images:
        try:
            file = BytesIO(content) if isinstance(content, bytes) else content
            with Image.open(file, formats=FORMATS) as opened:
                if self._size is None:
                    check_size(name, opened.height, opened.width)
                image = fit(plain(opened), self._size, self._channels)
        except DataError:
            raise
        except Exception as error:  # Pillow's decoders raise whatever the damage leads to
            reason = "no image of a known format" if isinstance(error, UnidentifiedImageError) else error
            raise DataError(
                f"{name}: cannot be read ({reason}); wanted one of {', '.join(FORMATS)}; replace or remove it"
            ) from error
        height, width = image.shape[2:]
        self._first = self._first or (name, (height, width))
        if self._first[1] != (height, width):
            other, (its_height, its_width) = self._first
            raise DataError(
                f"{name}: is {width}×{height}, but {other} is {its_width}×{its_height}; "
                "wanted one size for all; set data.size to resize them"
            )
        return image


def check_size(name: str, height: int, width: int) -> None:
    if not (SMALLEST <= height <= LARGEST and SMALLEST <= width <= LARGEST):
        raise DataError(
            f"{name}: is {width}×{height}; wanted {SMALLEST} to {LARGEST} pixels a side; "
            "set data.size to resize the images"
        )


def plain(image: Image.Image) -> Image.Image:
    """The image in mode L or RGB."""
    if "exif" in image.info:
        image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise ValueError("floating-point pixels, whose range is not known")
    if image.mode.startswith("I"):  # 16 bits, also where Pillow calls them 32
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    mode = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
    if not image.has_transparency_data:
        return image.convert(mode)
    colours = image.convert("RGBA")
    black = Image.new("RGB", image.size)
    black.paste(colours, mask=colours.getchannel("A"))
    return black.convert(mode)


def fit(image: Image.Image, size: int | None, channels: int | None) -> Images:
    """An L or RGB image as [1, C, H, W], in the channels and the size asked for."""
    if channels is not None and image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)  # Pillow's reduces without aliasing
    pixels = np.asarray(image)
    return pixels[None, None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)[None]


def conform(images: Images, config: Data) -> Images:
    """Images that are decoded already, in the channels and the size a config asks for."""
    channels, size = config.channels or images.shape[1], config.size
    if images.shape[1] == channels and size in (None, images.shape[2]):
        return images
    size = size or images.shape[2]
    out = np.empty((len(images), channels, size, size), np.uint8)

    def some(at: int) -> None:
        for index in range(at, min(at + AT_ONCE, len(images))):
            pixels = images[index][0] if images.shape[1] == 1 else images[index].transpose(1, 2, 0)
            out[index] = fit(Image.fromarray(np.ascontiguousarray(pixels)), size, channels)[0]

    for _ in in_order(some, range(0, len(images), AT_ONCE)):
        pass
    return out


def rgb(images: Images) -> Images:
    return np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images


def same_channels(sets: Sequence[Images]) -> list[Images]:
    """All sets RGB if one is."""
    alike = len({images.shape[1] for images in sets}) == 1
    return list(sets) if alike else [rgb(images) for images in sets]


def in_order(work: Callable[[_In], _Out], inputs: Iterable[_In]) -> Iterator[_Out]:
    """The results of threads in the order of the inputs, which are drawn only a little ahead."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting: deque[Future[_Out]] = deque()
        for given in inputs:
            waiting.append(pool.submit(work, given))
            if len(waiting) > 2 * _WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
