"""The nine image operations of AugMix on uint8 arrays [height, width, 3], as PIL does them.

None writes to its input, but the result may be the input itself if nothing changes. Against
PIL's `ImageOps`, `Image.rotate` and `Image.transform` (bilinear, black outside, same size):

* autocontrast, equalize, posterize, solarize and the two translations: equal;
* the two shears and rotate: at most 1 level apart with OpenCV 5, which rounds to the nearest
  level where PIL cuts the fraction off, so half a level brighter on average. OpenCV 4 rounds
  positions to 1/32 pixel: up to 9 levels apart where neighbours are black and white, less than
  1 on average over noise. Which pixels lie outside, hence are black, is the same.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]
Matrix: TypeAlias = tuple[tuple[float, float, float], tuple[float, float, float]]

_LEVELS = np.arange(256)[:, None]
_FLAGS = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP


def autocontrast(image: Pixels) -> Pixels:
    """Stretches each channel: its darkest value becomes 0, its brightest 255."""
    low, high = image.min(0).min(0), image.max(0).max(0)
    scale = 255 / np.maximum(high - low, 1)
    return _look_up(image, _LEVELS * scale - low * scale, unless=low == high)


def equalize(image: Pixels) -> Pixels:
    """Makes the histogram of each channel as flat as a map of its levels can."""
    counts = [
        cv2.calcHist([image], [channel], None, [256], [0, 256]) for channel in range(3)
    ]
    count = np.array(counts).reshape(3, 256).T.astype(np.int32)
    below = count.cumsum(0, dtype=np.int32) - count
    step = below.max(0, where=count > 0, initial=0) // 255
    return _look_up(image, (step // 2 + below) // np.maximum(step, 1), unless=step == 0)


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keeps the highest `bits` of each value."""
    kept: Pixels = image & np.uint8(0xFF & ~(0xFF >> bits))
    return kept


def solarize(image: Pixels, threshold: int) -> Pixels:
    """Inverts the values from `threshold` on."""
    return image ^ -(image >= threshold).view(np.uint8)


def translate_x(image: Pixels, pixels: int) -> Pixels:
    """Moves the image to the left, or to the right if `pixels` is negative."""
    moved, width = np.zeros_like(image), image.shape[1]
    if abs(pixels) < width:
        moved[:, max(0, -pixels) : width - pixels] = image[
            :, max(0, pixels) : width + pixels
        ]
    return moved


def translate_y(image: Pixels, pixels: int) -> Pixels:
    """Moves the image up, or down if `pixels` is negative."""
    moved, height = np.zeros_like(image), len(image)
    if abs(pixels) < height:
        moved[max(0, -pixels) : height - pixels] = image[
            max(0, pixels) : height + pixels
        ]
    return moved


def shear_x(image: Pixels, level: float) -> Pixels:
    """Moves each row to the left, by `level` times the distance of its centre from the top."""
    sheared = _warp(image, ((1, level, 0), (0, 1, 0)))
    _blacken(sheared, level)
    return sheared


def shear_y(image: Pixels, level: float) -> Pixels:
    """Moves each column up, by `level` times the distance of its centre from the left."""
    sheared = _warp(image, ((1, 0, 0), (level, 1, 0)))
    _blacken(sheared.transpose(1, 0, 2), level)
    return sheared


def rotate(image: Pixels, degrees: float) -> Pixels:
    """Turns the image counter-clockwise about its centre."""
    if degrees % 360 == 0:
        return image
    height, width, _ = image.shape
    turned = _warp(image, rotation(height, width, degrees))
    turned.reshape(-1, 3)[_outside(height, width, degrees)] = 0
    return turned


def _look_up(
    image: Pixels, table: npt.NDArray[Any], *, unless: npt.NDArray[np.bool_]
) -> Pixels:
    """Maps channel c by table[:, c], fractions cut off, unless it is to stay as it is."""
    table = table.clip(0, 255).astype(np.uint8)
    table[:, unless] = _LEVELS
    return np.asarray(cv2.LUT(image, table[None]), np.uint8)


def _warp(image: Pixels, matrix: Matrix) -> Pixels:
    """The colour at (x, y) comes from `matrix` times (x, y, 1); the edge goes on for ever.

    Coordinates are those of PIL, which has the centre of the first pixel at (0.5, 0.5).
    """
    height, width, _ = image.shape
    shifted = [(a, b, c + (a + b) / 2 - 0.5) for a, b, c in matrix]
    four = cv2.cvtColor(
        image, cv2.COLOR_RGB2RGBA
    )  # OpenCV is faster with four channels
    four = cv2.warpAffine(
        four,
        np.array(shifted),
        (width, height),
        flags=_FLAGS,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return np.asarray(cv2.cvtColor(four, cv2.COLOR_RGBA2RGB), np.uint8)


def _blacken(sheared: Pixels, level: float) -> None:
    """Makes black what `shear_x` took from outside."""
    height, width, _ = sheared.shape
    reach = int(min(abs(level) * height + 1, width))
    left = width - reach if level > 0 else 0
    centre = (
        np.arange(left + 0.5, left + reach) + level * np.arange(0.5, height)[:, None]
    )
    sheared[:, left : left + reach][(centre < 0) | (centre >= width)] = 0


def rotation(height: int, width: int, degrees: float) -> Matrix:
    """Where each pixel of an image that is turned counter-clockwise comes from, as for `_warp`."""
    angle = -math.radians(degrees % 360)
    cos, sin = (
        round(math.cos(angle), 15),
        round(math.sin(angle), 15),
    )  # rounded as PIL does
    right = cos * -(width / 2) + sin * -(height / 2) + width / 2
    down = -sin * -(width / 2) + cos * -(height / 2) + height / 2
    return (cos, sin, right), (-sin, cos, down)


@functools.lru_cache(maxsize=8)  # severity 1 needs four angles
def _outside(height: int, width: int, degrees: float) -> npt.NDArray[np.intp]:
    """The places of the pixels whose source is outside."""
    x, y = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    from_x, from_y = (a * x + b * y + c for a, b, c in rotation(height, width, degrees))
    return np.flatnonzero(
        (from_x < 0) | (from_x >= width) | (from_y < 0) | (from_y >= height)
    )
