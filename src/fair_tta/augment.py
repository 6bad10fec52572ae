"""The nine image operations of AugMix on uint8 arrays [height, width, 3], as PIL does them.

None writes to its input, but the result may be the input itself if nothing changes. Against
PIL's `ImageOps`, `Image.rotate` and `Image.transform` (bilinear, black outside, same size):

* autocontrast, equalize, posterize, solarize and the two translations: equal;
* the two shears and rotate: at most 1 level apart, because the weights of neighbours are rounded
  to 1/256 here and are doubles there. Which pixels lie outside, hence are black, is the same.

They work on whole pictures in few long calls of numpy, which lets threads run side by side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels: TypeAlias = npt.NDArray[np.uint8]

_LEVELS = np.arange(256)
_EVEN = np.uint32(0x00FF00FF)  # two of the four bytes of a packed pixel, each with 8 bits of room


def autocontrast(image: Pixels) -> Pixels:
    """Stretches each channel: its darkest value becomes 0, its brightest 255."""
    rows = image.reshape(len(image), -1)  # reduced in two steps: numpy is slow over short rows
    lowest, highest = rows.min(0), rows.max(0)
    tables = []
    for channel in range(3):
        low, high = int(lowest[channel::3].min()), int(highest[channel::3].max())
        scale = 255 / (high - low) if low < high else 1.0
        tables.append(_LEVELS * scale - (low * scale if low < high else 0.0))
    return _look_up(image, tables)


def equalize(image: Pixels) -> Pixels:
    """Makes the histogram of each channel as flat as a map of its levels can."""
    histogram = np.array(Image.fromarray(image).histogram())
    tables = []
    for count in (histogram[:256], histogram[256:512], histogram[512:]):
        step = int(count.sum() - count[count.nonzero()[0][-1]]) // 255
        tables.append((step // 2 + count.cumsum() - count) // step if step > 0 else _LEVELS)
    return _look_up(image, tables)


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keeps the highest `bits` of each value."""
    kept: Pixels = image & np.uint8(0xFF & ~(0xFF >> bits))
    return kept


def solarize(image: Pixels, threshold: int) -> Pixels:
    """Inverts the values from `threshold` on."""
    return image ^ -(image >= threshold).view(np.uint8)


def translate_x(image: Pixels, pixels: int) -> Pixels:
    """Moves the picture to the left, or to the right if `pixels` is negative."""
    moved, width = np.zeros_like(image), image.shape[1]
    if abs(pixels) < width:
        moved[:, max(0, -pixels) : width - pixels] = image[:, max(0, pixels) : width + pixels]
    return moved


def translate_y(image: Pixels, pixels: int) -> Pixels:
    """Moves the picture up, or down if `pixels` is negative."""
    moved, height = np.zeros_like(image), len(image)
    if abs(pixels) < height:
        moved[max(0, -pixels) : height - pixels] = image[max(0, pixels) : height + pixels]
    return moved


def shear_x(image: Pixels, level: float) -> Pixels:
    """Moves each row to the left, by `level` times the distance of its centre from the top."""
    return _shear(image, level, axis=1)


def shear_y(image: Pixels, level: float) -> Pixels:
    """Moves each column up, by `level` times the distance of its centre from the left."""
    return _shear(image, level, axis=0)


def rotate(image: Pixels, degrees: float) -> Pixels:
    """Turns the picture counter-clockwise about its centre."""
    if degrees % 360 == 0:
        return image
    height, width, _ = image.shape
    first, weights = _rotation(height, width, degrees)
    packed = _pack(image)
    even, odd, corner, product = np.zeros((4, height * width), np.uint32)
    for step, weight in zip((0, 1, width + 2, width + 3), weights, strict=True):
        packed[step:].take(first, mode="clip", out=corner)
        even += np.multiply(np.bitwise_and(corner, _EVEN, out=product), weight, out=product)
        corner >>= 8
        odd += np.multiply(np.bitwise_and(corner, _EVEN, out=product), weight, out=product)
    turned = np.empty_like(image)
    for channel, (total, byte) in enumerate(((even, 1), (odd, 1), (even, 3))):
        high = total.astype("<u4", copy=False).view(np.uint8)[byte::4]
        turned[..., channel] = high.reshape(turned.shape[:2])
    return turned


def _look_up(image: Pixels, tables: Sequence[npt.NDArray[Any]]) -> Pixels:
    """Maps the values of channel c by tables[c]; fractions are cut off."""
    levels = np.concatenate(
        [table.clip(0, 255) for table in tables], dtype=np.uint8, casting="unsafe"
    )
    mapped = np.empty((len(image), 3 * image.shape[1]), np.uint8)
    rows, starts = image.reshape(mapped.shape), _starts(image.shape[1])
    for part in range(0, len(image), 64):
        levels.take(rows[part : part + 64] + starts, mode="clip", out=mapped[part : part + 64])
    return mapped.reshape(image.shape)


@functools.lru_cache(maxsize=8)
def _starts(width: int) -> npt.NDArray[np.int16]:
    """Where the table of each value in a row starts."""
    return np.tile(np.array([0, 256, 512], np.int16), width)


def _shear(image: Pixels, level: float, *, axis: int) -> Pixels:
    """out[.., x] = image[.., x + offset], offset constant along a line, i.e. a row or a column.

    Lines with the same whole part of the offset form a band, and a band moves by a copy.
    """
    size, lines = image.shape[axis], image.shape[1 - axis]
    offset = level * (np.arange(lines) + 0.5)
    whole = np.floor(offset).astype(np.int64)
    second = np.rint((offset - whole) * 256).astype(np.uint16)  # weight of the second neighbour

    def at(band: slice, start: int, stop: int) -> tuple[slice, slice]:
        return (band, slice(start, stop)) if axis == 1 else (slice(start, stop), band)

    moved = np.zeros((lines, size + 1, 3) if axis == 1 else (size + 1, lines, 3), np.uint8)
    breaks = [0, *(np.flatnonzero(whole[1:] != whole[:-1]) + 1).tolist(), lines]
    for band in map(slice, breaks, breaks[1:]):
        shift = int(whole[band.start])
        start, stop = max(0, -shift), min(size + 1, size - shift)
        if start < stop:
            moved[at(band, start, stop)] = image[at(band, start + shift, stop + shift)]
        border, end = (start - 1, 0) if shift < 0 else (stop, size - 1)
        if 0 <= border <= size:  # a pixel at the border has itself as its second neighbour
            moved[at(band, border, border + 1)] = image[at(band, end, end + 1)]
    weights = np.stack([256 - second, second])
    if axis == 0:
        weights = np.repeat(weights, 3, axis=1)
    both = np.lib.stride_tricks.as_strided(
        moved, (2, len(image), 3 * image.shape[1]), (moved.strides[axis], moved.strides[0], 1)
    )
    rule = "kh,khn->hn" if axis == 1 else "kn,khn->hn"
    blend = np.einsum(rule, weights, both, dtype=np.uint16, casting="unsafe")
    blend >>= 8
    sheared: Pixels = blend.astype(np.uint8).reshape(image.shape)

    # What is blended with a pixel beyond the border may itself lie beyond it.
    line = np.arange(lines)
    for place in (-2 - whole, -1 - whole) if level < 0 else (size - 1 - whole, size - whole):
        centre = place + 0.5 + offset
        beyond = (place >= 0) & (place < size) & ((centre < 0) | (centre >= size))
        sheared[(line[beyond], place[beyond]) if axis == 1 else (place[beyond], line[beyond])] = 0
    return sheared


@functools.lru_cache(maxsize=8)  # severity 1 needs four angles; an entry for 224 x 224 has 2.4 MB
def _rotation(
    height: int, width: int, degrees: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint32]]:
    """Of each pixel the places of its four sources in `_pack` and their weights, [4, pixels] each.

    The weights add up to 256, or to 0 where the source is outside.
    """
    angle = -math.radians(degrees % 360)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)  # rounded as PIL does
    x, y = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    from_x = cos * x + sin * y + (cos * -(width / 2) + sin * -(height / 2) + width / 2)
    from_y = -sin * x + cos * y + (-sin * -(width / 2) + cos * -(height / 2) + height / 2)
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    left, top = np.floor(from_x - 0.5), np.floor(from_y - 0.5)
    dx, dy = from_x - 0.5 - left, from_y - 0.5 - top
    exact = 256 * np.stack([(1 - dx) * (1 - dy), dx * (1 - dy), (1 - dx) * dy, dx * dy])
    weights = np.floor(exact)
    rank = (weights - exact).argsort(0, kind="stable").argsort(0, kind="stable")
    weights += rank < 256 - weights.sum(0)  # those with the largest remainders are rounded up
    first = np.where(inside, (top + 1) * (width + 2) + left + 1, 0).reshape(-1)
    return first.astype(np.intp), (weights * inside).astype(np.uint32).reshape(4, -1)


def _pack(image: Pixels) -> npt.NDArray[np.uint32]:
    """A pixel per number, its fourth byte arbitrary; with a border that repeats the edge; flat."""
    height, width, _ = image.shape
    data = np.zeros(image.size + 1, np.uint8)
    data[:-1] = image.reshape(-1)
    packed = np.empty((height + 2, width + 2), np.uint32)
    packed[1:-1, 1:-1] = np.ndarray((height, width), "<u4", data, strides=(3 * width, 3))
    packed[0, 1:-1], packed[-1, 1:-1] = packed[1, 1:-1], packed[-2, 1:-1]
    packed[:, 0], packed[:, -1] = packed[:, 1], packed[:, -2]
    return packed.reshape(-1)
