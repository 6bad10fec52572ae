"""Random views of an image: crops, flips and AugMix, made in bulk.

Differences from the public TPT code:

* The size of the views is a parameter. There the affine operations are hard-wired to 224 pixels,
  which breaks models of other resolutions. Translations scale with the real width and height.
* All randomness comes from one explicit generator and is drawn before any work begins, a row of
  numbers per view: neither `n` nor the number of threads changes a bit of a view. There crops use
  torch's global state and AugMix numpy's, so that views depend on what ran before.
* AugMix is for every image, as the paper says. There only fine-grained datasets get it.
* Chains are mixed as pixels and normalised afterwards. There each is normalised first, which is
  the same because the weights add up to one.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps

from fair_tta import augment
from fair_tta.augment import Pixels
from fair_tta.errors import FairTTAError

_Uniform: TypeAlias = npt.NDArray[np.float64]  # numbers from 0 to 1, as drawn

_AREA = (0.08, 1.0)  # of a crop, as a part of the image's
_RATIO = (3 / 4, 4 / 3)  # of a crop, width to height
_TRIES = 10  # to find a crop that lies inside the image
_PER_CROP = 4 * _TRIES + 1  # numbers drawn for a crop and a flip
_DEPTH = 3  # most operations in a chain


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
            image: a picture of any size.
            size: height and width of the views.
            generator: the only source of randomness.
        """


@dataclass(frozen=True)
class Identity:
    """No views but the image itself."""

    @property
    def n(self) -> int:
        """Number of views, including the image itself."""
        return 1

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        """See `Views`."""
        return np.empty((0, *size, 3), np.float32)


@dataclass(frozen=True)
class CropFlip:
    """Random crops of 8 to 100 percent of the image's area, mirrored with probability 1/2.

    Args:
        n: number of views, including the image itself.
    """

    n: int = 64

    def __post_init__(self) -> None:
        _check_count("n", self.n)

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        """See `Views`."""
        return render(image, size, self.draw(image, size, generator))

    def draw(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> list[Recipe]:
        """What to do for each view; only the image's size is looked at."""
        return [
            Recipe(*_draw_crop(row, image)) for row in generator.random((self.n - 1, _PER_CROP))
        ]


@dataclass(frozen=True)
class AugMix:
    """Crops as of `CropFlip`, each mixed with randomly altered copies of itself.

    A view is ``m * crop + (1 - m) * sum_k w_k * chain_k(crop)`` with m ~ Beta(1, 1),
    w ~ Dirichlet(1, ..., 1) and chains of one to three operations: AugMix (Hendrycks et al., 2020)
    with the settings of TPT (Shu et al., 2022). `fair_tta.views` says what differs from its code.

    Args:
        n: number of views, including the image itself.
        severity: up to 10; the level of an operation is uniform between 0.1 and this.
        width: number of chains.

    Example:
        >>> image = Image.new("RGB", (500, 375))
        >>> AugMix(8)(image, (224, 224), content_generator(image, seed=0)).shape
        (7, 224, 224, 3)
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
        """See `Views`."""
        return render(image, size, self.draw(image, size, generator))

    def draw(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> list[Recipe]:
        """What to do for each view; only the image's size is looked at."""
        per_chain = 2 + 3 * _DEPTH
        numbers = generator.random((self.n - 1, _PER_CROP + 1 + self.width * per_chain))
        recipes = []
        for row in numbers:
            skip, chains = row[_PER_CROP], row[_PER_CROP + 1 :].reshape(self.width, per_chain)
            shares = -np.log1p(-chains[:, 0])  # exponential: their ratios are Dirichlet(1, ..., 1)
            weights = (1 - skip) * shares / shares.sum()
            steps = tuple(self._draw_chain(chain, size) for chain in chains[:, 1:].tolist())
            crop = _draw_crop(row[:_PER_CROP], image)
            recipes.append(Recipe(*crop, (float(skip), *weights.tolist()), steps))
        return recipes

    def _draw_chain(
        self, numbers: list[float], size: tuple[int, int]
    ) -> tuple[partial[Pixels], ...]:
        depth = 1 + int(_DEPTH * numbers[0])
        return tuple(
            _step(which, 0.1 + (self.severity - 0.1) * level, 1 if sign < 0.5 else -1, size)
            for which, level, sign in zip(*[iter(numbers[1 : 1 + 3 * depth])] * 3, strict=True)
        )


@dataclass(frozen=True)
class Recipe:
    """All that was drawn for one view.

    Attributes:
        box: top, left, height and width of the crop.
        flip: whether the crop is mirrored.
        weights: of the crop itself and of each chain; they add up to one.
        chains: operations to apply to the crop one after another.
    """

    box: tuple[int, int, int, int]
    flip: bool
    weights: tuple[float, ...] = (1.0,)
    chains: tuple[tuple[partial[Pixels], ...], ...] = ()


def render(
    image: Image.Image, size: tuple[int, int], recipes: list[Recipe]
) -> npt.NDArray[np.float32]:
    """Makes the views of the recipes, on as many threads as torch uses."""
    picture = _rgb(image)
    plain, mirrored = np.array(picture), np.array(ImageOps.mirror(picture))
    views = np.empty((len(recipes), *size, 3), np.float32)
    todo = deque(zip(views, recipes, strict=True))

    def work(stack: npt.NDArray[np.uint8]) -> None:
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
            if not recipe.chains:
                view[:] = crop
                continue
            stack[0] = crop
            for pixels, chain in zip(stack[1:], recipe.chains, strict=True):
                pixels[:] = functools.reduce(lambda result, step: step(result), chain, crop)
            weights = np.array(recipe.weights, np.float32)
            np.einsum("k,khwc->hwc", weights, stack, dtype=np.float32, out=view, casting="unsafe")
            np.minimum(view, 255, out=view)  # rounded weights may add up to more than one

    chains = max((len(recipe.chains) for recipe in recipes), default=0)
    threads = max(1, min(torch.get_num_threads(), len(recipes)))
    stacks = np.empty((threads, 1 + chains, *size, 3), np.uint8)
    if threads == 1:
        work(stacks[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, stacks))
    return views


def resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Bilinear with antialiasing, at most 1 level from PIL's and several times faster."""
    batch = np.ascontiguousarray(pixels).reshape(1, *pixels.shape).transpose(0, 3, 1, 2)
    scaled = torch.nn.functional.interpolate(
        torch.from_numpy(batch), size, mode="bilinear", antialias=True
    )
    return np.ascontiguousarray(scaled.numpy().transpose(0, 2, 3, 1)[0])


def content_generator(image: Image.Image, seed: int) -> np.random.Generator:
    """A generator that depends on the seed and on the size and pixels of the image, only."""
    picture = _rgb(image)
    digest = blake2b(f"{seed} {picture.width} {picture.height} ".encode(), digest_size=16)
    digest.update(picture.tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))


def _draw_crop(row: _Uniform, image: Image.Image) -> tuple[tuple[int, int, int, int], bool]:
    """A box as torchvision's RandomResizedCrop chooses it, and whether to mirror it."""
    width, height = image.size
    flip = bool(row[-1] < 0.5)
    for area, ratio, down, right in row[:-1].reshape(_TRIES, 4).tolist():
        area = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
        ratio = _RATIO[0] * (_RATIO[1] / _RATIO[0]) ** ratio
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return (int(down * (height - h + 1)), int(right * (width - w + 1)), h, w), flip
    # Long and narrow: the largest box in the centre whose ratio is allowed.
    w, h = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    return ((height - h) // 2, (width - w) // 2, h, w), flip


def _step(which: float, level: float, sign: int, size: tuple[int, int]) -> partial[Pixels]:
    """One of the nine operations; level 10 is the strongest."""
    part = level / 10
    height, width = size
    steps: tuple[tuple[Any, dict[str, float]], ...] = (
        (augment.autocontrast, {}),
        (augment.equalize, {}),
        (augment.posterize, {"bits": 4 - int(4 * part)}),
        (augment.solarize, {"threshold": 256 - int(256 * part)}),
        (augment.rotate, {"degrees": sign * int(30 * part)}),
        (augment.shear_x, {"level": sign * 0.3 * part}),
        (augment.shear_y, {"level": sign * 0.3 * part}),
        (augment.translate_x, {"pixels": sign * int(width / 3 * part)}),
        (augment.translate_y, {"pixels": sign * int(height / 3 * part)}),
    )
    operation, parameter = steps[int(which * len(steps))]
    return partial(operation, **parameter)


def _rgb(image: Image.Image) -> Image.Image:
    return image if image.mode == "RGB" else image.convert("RGB")


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int):
        raise FairTTAError(f"`{name}` should be a whole number (got {value!r}).")
    if value < 1:
        raise FairTTAError(f"`{name}` should be at least 1 (got {value!r}).")
