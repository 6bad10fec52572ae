"""The nine image operations of AugMix on uint8 arrays [height, width, 3], as PIL does them.

None writes to its input, but the result may be the input itself if nothing changes. Against
PIL's `ImageOps`, `Image.rotate` and `Image.transform` (bilinear, black outside, same size):

* autocontrast, equalize, posterize, solarize and the two translations: equal;
* the two shears and rotate: at most 1 level apart, because the weights of neighbours are rounded
  to 1/256 here and are doubles there. Which pixels lie outside, hence are black, is the same.
"""

from __future__ import annotations

import functools
import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels: TypeAlias = npt.NDArray[np.uint8]

_EVEN = np.uint32(0x00FF00FF)  # two of the four bytes of a packed pixel, each with 8 bits of room


def autocontrast(image: Pixels) -> Pixels:
    """Stretches each channel: its darkest value becomes 0, its brightest 255."""
    rows = image.reshape(len(image), -1)  # reduced in two steps: numpy is slow over short rows
    low, high = rows.min(0).reshape(-1, 3).min(0), rows.max(0).reshape(-1, 3).max(0)
    table = np.tile(np.arange(256.0), (3, 1))
    for levels, lo, hi in zip(table, low.tolist(), high.tolist(), strict=True):
        if lo < hi:
            scale = 255 / (hi - lo)
            levels[:] = levels * scale - lo * scale
    return _look_up(image, table)


def equalize(image: Pixels) -> Pixels:
    """Makes the histogram of each channel as flat as a map of its levels can."""
    counts = np.array(Image.fromarray(image).histogram()).reshape(3, 256)
    table = np.tile(np.arange(256), (3, 1))
    for levels, count in zip(table, counts, strict=True):
        step = int(count.sum() - count[count.nonzero()[0][-1]]) // 255
        if step > 0:
            levels[:] = (step // 2 + count.cumsum() - count) // step
    return _look_up(image, table)


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keeps the highest `bits` of each value."""
    return image & np.uint8(0xFF & ~(0xFF >> bits))


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
    even >>= 8
    return _unpack((even & _EVEN) | (odd & ~_EVEN)).reshape(height, width, 3)


def _look_up(image: Pixels, table: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> Pixels:
    """Maps the values of channel c by table[c]; fractions are cut off."""
    levels = table.clip(0, 255).astype(np.uint8).reshape(-1)
    start = np.tile(np.array([0, 256, 512], np.int16), image.shape[1])
    mapped = np.empty_like(image)
    rows = max(1, 2**15 // len(start))  # few at a time: their indices take eight bytes each
    for top in range(0, len(image), rows):
        part = image[top : top + rows]
        mapped[top : top + rows] = levels.take(part.reshape(len(part), -1) + start).reshape(part.shape)
    return mapped


def _shear(image: Pixels, level: float, *, axis: int) -> Pixels:
    """out[.., x] = image[.., x + offset], offset constant along a line, i.e. a row or a column.

    Lines with the same whole part of the offset form a band, and a band is a blend of two slices.
    """
    size, lines = image.shape[axis], image.shape[1 - axis]
    offset = level * (np.arange(lines) + 0.5)
    whole = np.floor(offset).astype(np.int64)
    part = np.rint((offset - whole) * 256).astype(np.uint16)
    far_weight = part[:, None, None] if axis == 1 else np.repeat(part, 3).reshape(1, lines, 3)

    def at(band: slice, start: int, stop: int) -> tuple[slice, slice]:
        return (band, slice(start, stop)) if axis == 1 else (slice(start, stop), band)

    every = slice(None)
    ends = image[at(every, 0, 1)], image[at(every, size - 1, size)]
    padded = np.concatenate((ends[0], image, ends[1]), axis, dtype=np.uint16)
    sheared = np.zeros_like(image)
    breaks = [0, *(np.flatnonzero(np.diff(whole)) + 1).tolist(), lines]
    for band in map(slice, breaks, breaks[1:]):
        shift = int(whole[band.start])
        start, stop = max(0, -1 - shift), min(size, size - shift)
        if start < stop:
            weight = far_weight[band] if axis == 1 else far_weight[:, band]
            blend = padded[at(band, start + shift + 1, stop + shift + 1)] * (256 - weight)
            blend += padded[at(band, start + shift + 2, stop + shift + 2)] * weight
            np.right_shift(blend, 8, out=sheared[at(band, start, stop)], casting="unsafe")
    # The first and last pixel of a line may still come from beyond the border.
    line = np.arange(lines)
    for place in (-1 - whole, size - 1 - whole):
        centre = place + 0.5 + offset
        beyond = (place >= 0) & (place < size) & ((centre < 0) | (centre >= size))
        sheared[(line[beyond], place[beyond]) if axis == 1 else (place[beyond], line[beyond])] = 0
    return sheared


@functools.lru_cache(maxsize=8)  # as many as severity 1 needs (4 angles) at two sizes
def _rotation(
    height: int, width: int, degrees: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint32]]:
    """Of each pixel the first of its four sources in `_pack`, and their weights [4, pixels].

    The weights add up to 256, or to 0 where the source is outside.
    """
    angle = -math.radians(degrees % 360)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)  # rounded as PIL does
    x, y = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    from_x = cos * x + sin * y + (cos * -(width / 2) + sin * -(height / 2) + width / 2)
    from_y = -sin * x + cos * y + (-sin * -(width / 2) + cos * -(height / 2) + height / 2)
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    from_x, from_y = from_x.reshape(-1) - 0.5, from_y.reshape(-1) - 0.5
    left, top = np.floor(from_x), np.floor(from_y)
    dx, dy = from_x - left, from_y - top
    exact = 256 * np.stack([(1 - dx) * (1 - dy), dx * (1 - dy), (1 - dx) * dy, dx * dy])
    weights = np.floor(exact)  # then those with the largest remainders are rounded up instead
    rank = (weights - exact).argsort(0, kind="stable").argsort(0, kind="stable")
    weights += rank < 256 - weights.sum(0)
    first = (top + 1) * (width + 2) + left + 1
    flat = inside.reshape(-1)
    return np.where(flat, first, 0).astype(np.intp), (weights * flat).astype(np.uint32)


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


def _unpack(packed: npt.NDArray[np.uint32]) -> Pixels:
    values = packed.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)
    image = np.empty((len(packed), 3), np.uint8)
    for channel in range(3):  # three strided copies are faster than one of short rows
        image[:, channel] = values[:, channel]
    return image
