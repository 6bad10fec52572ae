"""Random views of an image: crops, flips and AugMix, made in bulk as TPT makes them one by one.

Differences from the public TPT code:

* The size of the views is a parameter. There the affine operations are hard-wired to 224 pixels,
  which breaks models of other resolutions; translations scale with the real width and height.
* All randomness comes from one explicit generator and is drawn before any work begins, a row of
  numbers per view. There crops use torch's global state and AugMix numpy's, so a view depends on
  what ran before it. Here neither `n` nor the number of threads changes a bit of view i.
* AugMix is for every image, as the paper says. There only the fine-grained datasets get it.
* Chains are mixed as pixels and normalised afterwards. There each chain is normalised first: the
  same, because the weights add up to one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps

from fair_tta import augment
from fair_tta.augment import Pixels
from fair_tta.errors import FairTTAError

_Floats: TypeAlias = npt.NDArray[np.float32]
_Uniform: TypeAlias = npt.NDArray[np.float64]  # numbers in [0, 1)
Step: TypeAlias = "partial[Pixels]"

_AREA = (0.08, 1.0)  # of a crop, as a part of the image's
_RATIO = (3 / 4, 4 / 3)  # of a crop, width to height
_TRIES = 10  # to find a crop that lies inside the image
_DEPTH = 3  # most operations in a chain
_PER_CROP = 4 * _TRIES + 1  # numbers drawn for a crop and a flip


@runtime_checkable
class Views(Protocol):
    """How further views of an image are made. View 0, the image itself, is made elsewhere."""

    @property
    def n(self) -> int:
        """Number of views, including view 0."""

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        """Views 1 to n - 1 with values from 0 to 255: ``[n - 1, height, width, 3]``.

        Args:
            image: an RGB picture of any size.
            size: height and width of the views.
            generator: the only source of randomness.
        """


@dataclass(frozen=True)
class Identity:
    """No views but the image itself."""

    @property
    def n(self) -> int:
        return 1

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        return np.empty((0, *size, 3), np.float32)


@dataclass(frozen=True)
class CropFlip:
    """Random crops of 8 to 100 percent of the area, each mirrored with probability 1/2.

    Args:
        n: number of views, including the image itself.
    """

    n: int = 64

    def __post_init__(self) -> None:
        _check_count("n", self.n)

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        return render(image, size, self.draw(image.size, size, generator))

    def draw(
        self, source: tuple[int, int], size: tuple[int, int], generator: np.random.Generator
    ) -> list[Recipe]:
        """What to do to an image of width and height `source`."""
        return [_draw_crop(row, source) for row in generator.random((self.n - 1, _PER_CROP))]


@dataclass(frozen=True)
class AugMix:
    """Crops as of `CropFlip`, each mixed with randomly altered copies of itself.

    A view is ``m * crop + (1 - m) * sum_k w_k chain_k(crop)`` with m ~ Beta(1, 1),
    w ~ Dirichlet(1, ..., 1) and one to three operations per chain (Hendrycks et al., 2020, with
    the settings of TPT; Shu et al., 2022). See the module for the differences from its code.

    Args:
        n: number of views, including the image itself.
        severity: from above 0 to 10; an operation's strength is uniform between 0.1 and this.
        width: number of chains.
    """

    n: int = 64
    severity: float = 1.0
    width: int = 3

    def __post_init__(self) -> None:
        _check_count("n", self.n)
        _check_count("width", self.width)
        if not 0 < self.severity <= 10:
            raise FairTTAError(
                f"`severity` should be above 0 and at most 10 (got {self.severity!r})."
            )

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        return render(image, size, self.draw(image.size, size, generator))

    def draw(
        self, source: tuple[int, int], size: tuple[int, int], generator: np.random.Generator
    ) -> list[Recipe]:
        """What to do to an image of width and height `source`."""
        numbers = generator.random((self.n - 1, _PER_CROP + 1 + self.width * (2 + 3 * _DEPTH)))
        return [self._draw(row, source, size) for row in numbers]

    def _draw(self, row: _Uniform, source: tuple[int, int], size: tuple[int, int]) -> Recipe:
        crop = _draw_crop(row[:_PER_CROP], source)
        skip, row = float(row[_PER_CROP]), row[_PER_CROP + 1 :]
        shares, depths, row = row[: self.width], row[self.width : 2 * self.width], row[2 * self.width :]
        shares = -np.log1p(-shares)  # exponential, so their parts of the sum are Dirichlet(1, ..)
        shares *= (1 - skip) / max(shares.sum(), 1e-300)
        steps = [_draw_step(*numbers, self.severity, size) for numbers in row.reshape(-1, 3).tolist()]
        return Recipe(
            crop.box,
            crop.flip,
            (skip, *shares.tolist()),
            tuple(
                tuple(steps[_DEPTH * k : _DEPTH * k + 1 + int(_DEPTH * depth)])
                for k, depth in enumerate(depths.tolist())
            ),
        )


@dataclass(frozen=True)
class Recipe:
    """All that was drawn for one view.

    Attributes:
        box: top, left, height and width of the crop.
        flip: whether the crop is mirrored.
        weights: of the crop itself and of each chain; they add up to one.
        chains: operations to apply to the crop, one after another.
    """

    box: tuple[int, int, int, int]
    flip: bool
    weights: tuple[float, ...] = (1.0,)
    chains: tuple[tuple[Step, ...], ...] = ()


def render(
    image: Image.Image, size: tuple[int, int], recipes: list[Recipe]
) -> npt.NDArray[np.float32]:
    """Makes the views that were drawn, on as many threads as torch may use."""
    picture = image.convert("RGB")
    plain, mirrored = np.array(picture), np.array(ImageOps.mirror(picture))
    views = np.empty((len(recipes), *size, 3), np.float32)
    threads = max(1, min(torch.get_num_threads(), len(recipes)))
    todo = deque(zip(views, recipes, strict=True))

    def work(product: _Floats) -> None:
        while True:
            try:
                view, recipe = todo.popleft()
            except IndexError:
                return
            top, left, height, width = recipe.box
            if recipe.flip:  # to mirror the image once is faster than to mirror each crop
                left = picture.width - left - width
            source = mirrored if recipe.flip else plain
            crop = resize(source[top : top + height, left : left + width], size)
            np.multiply(crop, recipe.weights[0], out=view, dtype=np.float32)
            for weight, chain in zip(recipe.weights[1:], recipe.chains, strict=True):
                pixels = crop
                for step in chain:
                    pixels = step(pixels)
                view += np.multiply(pixels, weight, out=product, dtype=np.float32)
            np.minimum(view, 255, out=view)  # rounding may make the weights more than one

    scratch = np.empty((threads, *size, 3), np.float32)
    if threads == 1:
        work(scratch[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, scratch))
    return views


def resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Bilinear, averaging when it shrinks; at most 1 level from PIL, and several times faster."""
    batch = torch.from_numpy(np.ascontiguousarray(pixels))[None].permute(0, 3, 1, 2)
    scaled = torch.nn.functional.interpolate(batch, size, mode="bilinear", antialias=True)
    return np.ascontiguousarray(scaled.permute(0, 2, 3, 1).numpy()[0])


def content_generator(image: Image.Image, seed: int) -> np.random.Generator:
    """A generator that depends on the seed and on the size and pixels of the image only."""
    picture = image.convert("RGB")
    digest = blake2b(f"{seed} {picture.width} {picture.height} ".encode(), digest_size=16)
    digest.update(picture.tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))


def _draw_crop(row: _Uniform, source: tuple[int, int]) -> Recipe:
    """As torchvision's RandomResizedCrop does: a box and whether to flip it."""
    width, height = source
    for area, ratio, down, right in row[:-1].reshape(_TRIES, 4).tolist():
        area = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
        ratio = _RATIO[0] * (_RATIO[1] / _RATIO[0]) ** ratio
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            box = int(down * (height - h + 1)), int(right * (width - w + 1)), h, w
            break
    else:  # the largest box in the centre whose ratio is allowed
        w = min(width, round(height * _RATIO[1]))
        h = min(height, round(width / _RATIO[0]))
        box = (height - h) // 2, (width - w) // 2, h, w
    return Recipe(box, flip=bool(row[-1] < 0.5))


def _draw_step(
    which: float, level: float, sign: float, severity: float, size: tuple[int, int]
) -> Step:
    """One of nine operations, its strength a tenth of `level` of the most it can be."""
    strength = (0.1 + (severity - 0.1) * level) / 10
    height, width = size
    towards = 1 if sign < 0.5 else -1
    make: tuple[Callable[[], Step], ...] = (
        lambda: partial(augment.autocontrast),
        lambda: partial(augment.equalize),
        lambda: partial(augment.posterize, bits=4 - int(4 * strength)),
        lambda: partial(augment.solarize, threshold=256 - int(256 * strength)),
        lambda: partial(augment.rotate, degrees=towards * int(30 * strength)),
        lambda: partial(augment.shear_x, level=towards * 0.3 * strength),
        lambda: partial(augment.shear_y, level=towards * 0.3 * strength),
        lambda: partial(augment.translate_x, pixels=towards * int(width / 3 * strength)),
        lambda: partial(augment.translate_y, pixels=towards * int(height / 3 * strength)),
    )
    return make[int(which * len(make))]()


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int):
        raise FairTTAError(f"`{name}` should be a whole number (got {value!r}).")
    if value < 1:
        raise FairTTAError(f"`{name}` should be at least 1 (got {value!r}).")
