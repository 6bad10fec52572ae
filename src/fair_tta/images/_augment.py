"""The nine image operations of AugMix on uint8 arrays ``[height, width, 3]``, as in PIL.

None writes to its input, but the result may be the input itself if nothing changes. Against
PIL's `ImageOps`, `Image.rotate` and `Image.transform` (bilinear, black outside, same size):

* autocontrast, equalize, posterize, solarize and the two translations: equal;
* the two shears and rotate: at most 1 level apart with OpenCV 5, which rounds to the nearest
  level where PIL truncates, so half a level brighter on average. OpenCV 4 rounds
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
Size: TypeAlias = tuple[int, int]
"""Height and width in pixels."""
_MatrixRow: TypeAlias = tuple[float, float, float]
Matrix: TypeAlias = tuple[_MatrixRow, _MatrixRow]

_ALL_LEVELS = np.arange(256)[:, None]
_WARP_FLAGS = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP


def autocontrast(image: Pixels) -> Pixels:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    low = image.min(0).min(0)
    high = image.max(0).max(0)
    scale = 255 / np.maximum(high - low, 1)
    table = _ALL_LEVELS * scale - low * scale
    return _look_up(image, table, unchanged=low == high)


def equalize(image: Pixels) -> Pixels:
    """Make the histogram of each channel as flat as a map of its levels can."""
    histograms = []
    for channel in range(3):
        histogram = cv2.calcHist([image], [channel], None, [256], [0, 256])
        histograms.append(histogram.ravel())  # [256] or [256, 1]
    count = np.stack(histograms, 1).astype(np.int32)
    below = count.cumsum(0, dtype=np.int32) - count
    # As in PIL, the brightest level that occurs does not count for the step.
    step = below.max(0, where=count > 0, initial=0) // 255
    table = (step // 2 + below) // np.maximum(step, 1)
    return _look_up(image, table, unchanged=step == 0)


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keep the highest `bits` of each value."""
    posterized: Pixels = image & np.uint8(bit_mask(bits))
    return posterized


def bit_mask(bits: int) -> int:
    """Return a byte whose highest `bits` are set."""
    return 0xFF & ~(0xFF >> bits)


def solarize(image: Pixels, threshold: int) -> Pixels:
    """Invert the values that are at least `threshold`."""
    return image ^ -(image >= threshold).view(np.uint8)


def translate_x(image: Pixels, pixels: int) -> Pixels:
    """Move the image to the left, or to the right if `pixels` is negative."""
    moved = np.zeros_like(image)
    width = image.shape[1]
    if abs(pixels) < width:
        remaining = image[:, max(0, pixels) : width + pixels]
        moved[:, max(0, -pixels) : width - pixels] = remaining
    return moved


def translate_y(image: Pixels, pixels: int) -> Pixels:
    """Move the image up, or down if `pixels` is negative."""
    moved = np.zeros_like(image)
    height = len(image)
    if abs(pixels) < height:
        remaining = image[max(0, pixels) : height + pixels]
        moved[max(0, -pixels) : height - pixels] = remaining
    return moved


def shear_x(image: Pixels, level: float) -> Pixels:
    """Move each row to the left, by `level` times the distance of its centre from the top."""
    sheared = _warp(image, ((1, level, 0), (0, 1, 0)))
    _blacken_outside(sheared, level)
    return sheared


def shear_y(image: Pixels, level: float) -> Pixels:
    """Move each column up, by `level` times the distance of its centre from the left."""
    sheared = _warp(image, ((1, 0, 0), (level, 1, 0)))
    _blacken_outside(sheared.transpose(1, 0, 2), level)
    return sheared


def rotate(image: Pixels, degrees: float) -> Pixels:
    """Turn the image counter-clockwise about its centre."""
    if degrees % 360 == 0:
        return image
    height, width, _ = image.shape
    turned = _warp(image, rotation(height, width, degrees))
    turned.reshape(-1, 3)[_pixels_outside(height, width, degrees)] = 0
    return turned


def _look_up(
    image: Pixels, table: npt.NDArray[Any], *, unchanged: npt.NDArray[np.bool_]
) -> Pixels:
    """Map each channel by its column of a table ``[256, 3]``, except the unchanged channels."""
    table = table.clip(0, 255).astype(np.uint8)
    table[:, unchanged] = _ALL_LEVELS
    return np.asarray(cv2.LUT(image, table[None]), np.uint8)


def _warp(image: Pixels, matrix: Matrix) -> Pixels:
    """Take the colour at (x, y) from `matrix` times (x, y, 1), with the edge pixels repeated.

    Coordinates are those of PIL, which has the centre of the first pixel at (0.5, 0.5).
    """
    height, width, _ = image.shape
    # OpenCV has the centre of the first pixel at (0, 0).
    shifted = [(a, b, c + (a + b) / 2 - 0.5) for a, b, c in matrix]
    # OpenCV is faster with four channels.
    four_channels = cv2.warpAffine(
        cv2.cvtColor(image, cv2.COLOR_RGB2RGBA),
        np.array(shifted),
        (width, height),
        flags=_WARP_FLAGS,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return np.asarray(cv2.cvtColor(four_channels, cv2.COLOR_RGBA2RGB), np.uint8)


def _blacken_outside(sheared: Pixels, level: float) -> None:
    """Blacken, in place, what `shear_x` took from outside the image."""
    height, width, _ = sheared.shape
    # Only the columns that some row moved across the edge are looked at.
    margin = int(min(abs(level) * height + 1, width))
    left = width - margin if level > 0 else 0
    columns = np.arange(left + 0.5, left + margin)
    rows = np.arange(0.5, height)[:, None]
    is_outside = ~is_inside(columns + level * rows, width)
    sheared[:, left : left + margin][is_outside] = 0


def rotation(height: int, width: int, degrees: float) -> Matrix:
    """Return the matrix of `_warp` that turns an image counter-clockwise about its centre."""
    angle = -math.radians(degrees % 360)
    # PIL rounds to 15 digits too.
    cos = round(math.cos(angle), 15)
    sin = round(math.sin(angle), 15)
    centre_x = width / 2
    centre_y = height / 2
    right = cos * -centre_x + sin * -centre_y + centre_x
    down = -sin * -centre_x + cos * -centre_y + centre_y
    return (cos, sin, right), (-sin, cos, down)


@functools.lru_cache(maxsize=8)  # severity 1 needs four angles
def _pixels_outside(height: int, width: int, degrees: float) -> npt.NDArray[np.intp]:
    """Return the flat indices of the pixels that a rotation takes from outside the image."""
    x = np.arange(width) + 0.5
    y = np.arange(height)[:, None] + 0.5
    (a, b, c), (d, e, f) = rotation(height, width, degrees)
    is_inside_x = is_inside(a * x + b * y + c, width)
    is_inside_y = is_inside(d * x + e * y + f, height)
    return np.flatnonzero(~(is_inside_x & is_inside_y))


def is_inside(positions: Any, length: int) -> Any:
    """Return where positions lie within a line of pixels; of numpy or torch."""
    return (positions >= 0) & (positions < length)
