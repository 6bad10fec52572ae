"""Random views of an image: crops, flips and AugMix, and checks of user-defined views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from fair_tta.errors import FairTTAError, check_count, check_number
from fair_tta.images import _augment as augment
from fair_tta.images._augment import Pixels, Size
from fair_tta.images._draw import Chain, Recipe, Renderer, render_views, to_rgb
from fair_tta.images._load import pixel_digest

_Box: TypeAlias = tuple[int, int, int, int]
_Numbers: TypeAlias = npt.NDArray[np.float64]

# Crops and chains are those of TPT: the defaults of torchvision's RandomResizedCrop, and AugMix
# with chains of one to three operations.
_AREA_RANGE = (0.08, 1.0)  # of a crop, as a part of the image
_RATIO_RANGE = (3 / 4, 4 / 3)  # of a crop, width to height
_CROP_ATTEMPTS = 10  # to find a crop that lies inside the image
_MAX_STEPS = 3  # operations in a chain

# Numbers that are drawn for one crop: area, ratio, top and left of each attempt, and the flip.
_NUMBERS_PER_CROP = 4 * _CROP_ATTEMPTS + 1
# And for one chain: share, number of steps, and operation, level and sign of each step.
_NUMBERS_PER_CHAIN = 2 + 3 * _MAX_STEPS

# How far user-defined views may lie outside 0..255, as they do after bicubic resizing.
_RANGE_TOLERANCE = 1.0

GEOMETRIC_OPERATIONS: tuple[Callable[..., Pixels], ...] = (
    augment.rotate,
    augment.shear_x,
    augment.shear_y,
    augment.translate_x,
    augment.translate_y,
)
"""Operations that move pixels."""

# Recipes and rows that are stored depend on this order.
_OPERATIONS: tuple[Callable[..., Pixels], ...] = (
    augment.autocontrast,
    augment.equalize,
    augment.posterize,
    augment.solarize,
    *GEOMETRIC_OPERATIONS,
)


def make_step(
    operation: Callable[..., Pixels], strength: float, size: Size
) -> partial[Pixels]:
    """Return an operation for views of a size, at a strength from -1 to 1 of the strongest."""
    height, width = size
    if operation is augment.posterize:
        return partial(operation, bits=4 - int(4 * abs(strength)))
    if operation is augment.solarize:
        return partial(operation, threshold=256 - int(256 * abs(strength)))
    if operation is augment.rotate:
        return partial(operation, degrees=int(30 * strength))
    if operation is augment.shear_x or operation is augment.shear_y:
        return partial(operation, level=0.3 * strength)
    if operation is augment.translate_x:
        return partial(operation, pixels=int(width / 3 * strength))
    if operation is augment.translate_y:
        return partial(operation, pixels=int(height / 3 * strength))
    return partial(operation)


@runtime_checkable
class Views(Protocol):
    """A way to make further views of an image. View 0, the image itself, is made elsewhere."""

    @property
    def n(self) -> int:
        """Number of views, including view 0."""

    def __call__(
        self, image: Image.Image, size: Size, generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        """Return views 1 to n - 1, from 0 to 255: ``[n - 1, height, width, 3]``.

        Args:
            image: of any size.
            size: height and width of the views.
            generator: the only source of randomness.
        """


@dataclass(frozen=True)
class AugMix:
    """Random crops of the image, half of them mirrored, each mixed with altered copies of itself.

    A view is ``m * crop + (1 - m) * sum_k w_k * chain_k(crop)`` with crops of 8 to 100 percent of
    the area, m ~ Beta(1, 1), w ~ Dirichlet(1, ..., 1) and chains of one to three operations: AugMix
    (Hendrycks et al., 2020) with the settings of TPT (Shu et al., 2022).

    Args:
        n: number of views, including the image itself.
        severity: up to 10; the level of an operation is uniform between 0.1 and this.
        width: number of chains.
        render: the code that draws the views: ``"opencv"`` one by one on the CPU, ``"tensors"``
            all views of several images where the model is, which is slow on a CPU, or ``"auto"``:
            OpenCV for a model on the CPU, tensors for one elsewhere.

    Example:
        >>> image = Image.new("RGB", (500, 375))
        >>> AugMix(8)(image, (224, 224), content_generator(image, seed=0)).shape
        (7, 224, 224, 3)
    """

    n: int = 64
    severity: float = 1.0
    width: int = 3
    render: Renderer | str = Renderer.AUTO

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_count("width", self.width)
        if not isinstance(self.render, Renderer):
            names = [renderer.value for renderer in Renderer]
            if self.render not in names:
                raise FairTTAError(
                    f"`render` should be one of {names} (got {self.render!r}).",
                    argument="render",
                )
            object.__setattr__(self, "render", Renderer(self.render))
        check_number(
            "severity",
            self.severity,
            "be above 0 and at most 10",
            lambda x: 0 < x <= 10,
        )

    def __call__(
        self, image: Image.Image, size: Size, generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        return render_views(image, size, self._draw_recipes(image, size, generator))

    def _draw_recipes(
        self, image: Image.Image, size: Size, generator: np.random.Generator
    ) -> list[Recipe]:
        """Draw what to do for each view; of the image only its size matters."""
        # One call of the generator, so that a recipe depends on nothing but the seed.
        numbers_per_view = _NUMBERS_PER_CROP + 1 + self.width * _NUMBERS_PER_CHAIN
        numbers = generator.random((self.n - 1, numbers_per_view))
        crop_numbers, crop_weights, chain_numbers = np.split(
            numbers, [_NUMBERS_PER_CROP, _NUMBERS_PER_CROP + 1], axis=1
        )
        chain_numbers = chain_numbers.reshape(-1, self.width, _NUMBERS_PER_CHAIN)

        # Exponential numbers divided by their sum are Dirichlet(1, ..., 1).
        shares = -np.log1p(-chain_numbers[..., 0])
        chain_weights = (1 - crop_weights) * shares / shares.sum(1, keepdims=True)
        weights = np.hstack([crop_weights, chain_weights])

        return [
            Recipe(box, is_mirrored, tuple(view_weights), chains)
            for box, is_mirrored, view_weights, chains in zip(
                _draw_boxes(crop_numbers[:, :-1], image),
                (crop_numbers[:, -1] < 0.5).tolist(),
                weights.tolist(),
                self._draw_chains(chain_numbers, size),
                strict=True,
            )
        ]

    def _draw_chains(self, numbers: _Numbers, size: Size) -> list[tuple[Chain, ...]]:
        """Draw the chains of each view from numbers ``[views, chains, _NUMBERS_PER_CHAIN]``."""
        lengths = 1 + (_MAX_STEPS * numbers[..., 1]).astype(int)
        steps = numbers[..., 2:].reshape(*lengths.shape, _MAX_STEPS, 3)
        indices = (len(_OPERATIONS) * steps[..., 0]).astype(int)
        # Levels go up to 10, strengths to 1.
        levels = 0.1 + (self.severity - 0.1) * steps[..., 1]
        strengths = np.where(steps[..., 2] < 0.5, 0.1, -0.1) * levels

        chains = []
        for view in zip(
            lengths.tolist(), indices.tolist(), strengths.tolist(), strict=True
        ):
            view_chains = []
            for length, chain_indices, chain_strengths in zip(*view, strict=True):
                chain = []
                for step in range(length):
                    operation = _OPERATIONS[chain_indices[step]]
                    chain.append(make_step(operation, chain_strengths[step], size))
                view_chains.append(tuple(chain))
            chains.append(tuple(view_chains))
        return chains


def _draw_boxes(numbers: _Numbers, image: Image.Image) -> list[_Box]:
    """Draw boxes as torchvision's RandomResizedCrop does from ``[views, 4 * _CROP_ATTEMPTS]``."""
    width, height = image.size
    area, ratio, down, right = numbers.reshape(-1, _CROP_ATTEMPTS, 4).transpose(2, 0, 1)
    min_area, max_area = _AREA_RANGE
    area = width * height * (min_area + (max_area - min_area) * area)
    # Uniform on a logarithmic scale.
    min_ratio, max_ratio = _RATIO_RANGE
    ratio = min_ratio * (max_ratio / min_ratio) ** ratio
    box_width = np.rint(np.sqrt(area * ratio))
    box_height = np.rint(np.sqrt(area / ratio))
    top = down * (height - box_height + 1)
    left = right * (width - box_width + 1)
    attempts = np.stack([top, left, box_height, box_width], -1).astype(int)

    # The first attempt that lies inside the image.
    fits_width = (box_width > 0) & (box_width <= width)
    fits_height = (box_height > 0) & (box_height <= height)
    fits = fits_width & fits_height
    boxes = attempts[np.arange(len(attempts)), fits.argmax(1)]

    # In a long and narrow image none may: the largest box at the centre with an allowed ratio.
    max_width = min(width, round(height * max_ratio))
    max_height = min(height, round(width / min_ratio))
    top_edge = (height - max_height) // 2
    left_edge = (width - max_width) // 2
    boxes[~fits.any(1)] = (top_edge, left_edge, max_height, max_width)
    return [tuple(box) for box in boxes.tolist()]


def content_generator(
    image: Image.Image, seed: int, use: str = ""
) -> np.random.Generator:
    """Return a random generator that seed, size, pixels and use of the image determine."""
    digest = pixel_digest(to_rgb(image), f"{use}{seed} {image.width} {image.height} ")
    return np.random.default_rng(int.from_bytes(digest, "big"))


def check_arrays(
    name: str, views: Views, arrays: Any, size: Size
) -> npt.NDArray[np.float32]:
    """Return the array that `views`, the argument `name`, made; raise `FairTTAError` if invalid.

    It should be ``[n - 1, height, width, 3]``, from 0 to 255.
    """
    expected_shape = [views.n - 1, *size, 3]
    received = type(arrays).__name__
    if isinstance(arrays, np.ndarray):
        received = f"{list(arrays.shape)} of {arrays.dtype}"
        if list(arrays.shape) == expected_shape and arrays.dtype.kind in "fiu":
            if isinstance(views, AugMix):  # its range is known
                return arrays
            low = float(arrays.min(initial=0))
            high = float(arrays.max(initial=0))
            # False if one value is NaN.
            if low >= -_RANGE_TOLERANCE and high <= 255 + _RANGE_TOLERANCE:
                return arrays
            received = f"{low:g} to {high:g}"
    raise FairTTAError(
        f"`{name}` should return an array {expected_shape} of numbers from 0 to 255, all views "
        f"except the image itself (got {received} from {type(views).__name__}).",
        argument=name,
    )
