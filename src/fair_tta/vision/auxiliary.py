"""Auxiliary pictures without a segmentation: what is left of an image when its content is spoilt.

They satisfy `Views`, so they are made in bulk at the model's own size. The image is cut to that
shape at its centre first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from fair_tta.errors import check_number
from fair_tta.vision.augment import Pixels
from fair_tta.vision.rendering import resize, rgb
from fair_tta.vision.views import GEOMETRIC, check_count

_OPERATIONS = 2  # of rotate, shear and translate, one after another
_HOLE = 0.5  # of the shorter side, at most


@dataclass(frozen=True)
class NoisyViews:
    """The image with normal noise in every pixel and channel.

    Args:
        n: number of views, including the image itself, which has no noise.
        std: of the noise, where black is 0 and white is 1.

    Example:
        >>> NoisyViews(4)(Image.new("RGB", (9, 9)), (8, 8), np.random.default_rng(0)).shape
        (3, 8, 8, 3)
    """

    n: int = 2
    std: float = 0.1

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_number("std", self.std, "be a number from 0 on", lambda x: 0 <= x < math.inf)

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        """See `Views`."""
        noise = generator.standard_normal((self.n - 1, *size, 3), np.float32)
        noisy: npt.NDArray[np.float32] = (_centre(image, size) + 255 * self.std * noise).clip(
            0, 255
        )
        return noisy.astype(np.float32)


@dataclass(frozen=True)
class DistortedViews:
    """The image rotated, sheared or moved, twice, with a black hole of up to half its side.

    Rotations are up to 30 degrees, shears up to 0.3, moves up to a third of the side.

    Args:
        n: number of views, including the image itself, which is not distorted.

    Example:
        >>> DistortedViews(4)(Image.new("RGB", (9, 9)), (8, 8), np.random.default_rng(0)).shape
        (3, 8, 8, 3)
    """

    n: int = 16

    def __post_init__(self) -> None:
        check_count("n", self.n)

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        """See `Views`."""
        centre = _centre(image, size)
        drawn = generator.random((self.n - 1, 2 * _OPERATIONS + 3))
        views = np.empty((self.n - 1, *size, 3), np.float32)
        for view, numbers in zip(views, drawn, strict=True):
            pixels = centre
            for which, part in numbers[:-3].reshape(_OPERATIONS, 2):
                pixels = GEOMETRIC[int(len(GEOMETRIC) * which)](2 * part - 1, *size)(pixels)
            view[:] = pixels
            _cut_out(view, *numbers[-3:])
        return views


def _cut_out(view: npt.NDArray[np.float32], side: float, down: float, right: float) -> None:
    """Makes a square black; it may stick out of the picture."""
    height, width, _ = view.shape
    half = _HOLE * side * min(height, width) / 2
    top, left = (max(0, round(at - half)) for at in (down * height, right * width))
    view[top : round(down * height + half), left : round(right * width + half)] = 0


def _centre(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """The largest part at the centre that has the shape of `size`, at that size."""
    picture = np.array(rgb(image))
    height, width, _ = picture.shape
    scale = min(height / size[0], width / size[1])
    h, w = (max(1, round(scale * edge)) for edge in size)
    top, left = (height - h) // 2, (width - w) // 2
    return resize(picture[top : top + h, left : left + w], size)
