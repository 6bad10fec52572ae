"""Random views of an image: crops, flips and AugMix, and checks of user-defined views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from fair_tta.errors import FairTTAError, check_count, check_number
from fair_tta.images import _augment as augment
from fair_tta.images._augment import Pixels
from fair_tta.images._draw import Recipe, Renderer, render_views, to_rgb
from fair_tta.images._load import pixel_digest

_AREA = (0.08, 1.0)  # of a crop, as a part of the image's
_RATIO = (3 / 4, 4 / 3)  # of a crop, width to height
_TRIES = 10  # to find a crop that lies inside the image
_PER_CROP = 4 * _TRIES + 1  # numbers drawn for a crop and a flip
_DEPTH = 3  # most operations in a chain
_SLACK = (
    1.0  # how far values of user-defined views may overshoot 0..255, as after resizing
)

# The nine operations, given a part from -1 to 1 of the strongest and the size of the view.
_STEPS: tuple[Callable[[float, int, int], partial[Pixels]], ...] = (
    lambda part, h, w: partial(augment.autocontrast),
    lambda part, h, w: partial(augment.equalize),
    lambda part, h, w: partial(augment.posterize, bits=4 - int(4 * abs(part))),
    lambda part, h, w: partial(augment.solarize, threshold=256 - int(256 * abs(part))),
    lambda part, h, w: partial(augment.rotate, degrees=int(30 * part)),
    lambda part, h, w: partial(augment.shear_x, level=0.3 * part),
    lambda part, h, w: partial(augment.shear_y, level=0.3 * part),
    lambda part, h, w: partial(augment.translate_x, pixels=int(w / 3 * part)),
    lambda part, h, w: partial(augment.translate_y, pixels=int(h / 3 * part)),
)
GEOMETRIC_OPERATIONS = _STEPS[4:]
"""Those that move pixels: rotate, shear and translate."""


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
            image: of any size.
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
        return np.empty((0, *size, 3), np.float32)


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
        render: who draws the views: ``"opencv"`` one by one on the CPU, ``"tensors"`` all views of
            several images where the model is, which is slow on a CPU, or ``"auto"``: OpenCV for a
            model on the CPU, tensors for one elsewhere.

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
        names = [renderer.value for renderer in Renderer]
        if not isinstance(self.render, Renderer):
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
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        return render_views(image, size, self._draw_recipes(image, size, generator))

    def _draw_recipes(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> list[Recipe]:
        """What to do for each view; only the image's size is looked at."""
        per_chain = 2 + 3 * _DEPTH
        numbers = generator.random((self.n - 1, _PER_CROP + 1 + self.width * per_chain))
        skip = numbers[:, _PER_CROP, None]
        chains = numbers[:, _PER_CROP + 1 :].reshape(-1, self.width, per_chain)
        shares = -np.log1p(
            -chains[..., 0]
        )  # exponential: their ratios are Dirichlet(1, ..., 1)
        weights = np.hstack([skip, (1 - skip) * shares / shares.sum(1, keepdims=True)])
        depth = 1 + (_DEPTH * chains[..., 1]).astype(int)
        which, level, sign = (
            chains[..., 2:].reshape(*depth.shape, _DEPTH, 3).transpose(3, 0, 1, 2)
        )
        amount = np.where(sign < 0.5, 0.1, -0.1) * (0.1 + (self.severity - 0.1) * level)
        which = (len(_STEPS) * which).astype(int)
        steps = [
            tuple(
                tuple(_STEPS[i](a, *size) for i, a in zip(*drawn[:2], strict=True))[
                    : drawn[2]
                ]
                for drawn in zip(*view, strict=True)
            )
            for view in zip(
                which.tolist(), amount.tolist(), depth.tolist(), strict=True
            )
        ]
        crops = _crops(numbers[:, :_PER_CROP], image)
        return [
            Recipe(*crop, tuple(shares), chains)
            for crop, shares, chains in zip(crops, weights.tolist(), steps, strict=True)
        ]


def content_generator(
    image: Image.Image, seed: int, use: str = ""
) -> np.random.Generator:
    """A generator that depends on the seed, on the size and pixels of the image, and on its use."""
    digest = pixel_digest(to_rgb(image), f"{use}{seed} {image.width} {image.height} ")
    return np.random.default_rng(int.from_bytes(digest, "big"))


def _crops(
    numbers: npt.NDArray[np.float64], image: Image.Image
) -> Iterator[tuple[tuple[int, int, int, int], bool]]:
    """Boxes as torchvision's RandomResizedCrop chooses them, and whether to mirror them."""
    width, height = image.size
    area, ratio, down, right = numbers[:, :-1].reshape(-1, _TRIES, 4).transpose(2, 0, 1)
    area = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
    ratio = _RATIO[0] * (_RATIO[1] / _RATIO[0]) ** ratio
    w, h = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    boxes = np.stack(
        [down * (height - h + 1), right * (width - w + 1), h, w], -1
    ).astype(int)
    first = boxes[np.arange(len(boxes)), fits.argmax(1)].tolist()
    # Long and narrow: the largest box in the centre whose ratio is allowed.
    widest = min(width, round(height * _RATIO[1]))
    highest = min(height, round(width / _RATIO[0]))
    centre = ((height - highest) // 2, (width - widest) // 2, highest, widest)
    has_box: list[bool] = fits.any(axis=1).tolist()  # type: ignore[assignment]
    is_mirrored = (numbers[:, -1] < 0.5).tolist()
    for box, is_box, flip in zip(first, has_box, is_mirrored, strict=True):
        yield tuple(box) if is_box else centre, flip


def check_arrays(
    name: str, views: Views, arrays: Any, size: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """The array that `views`, the argument `name`, returned: ``[n - 1, height, width, 3]``."""
    wanted, got = [views.n - 1, *size, 3], type(arrays).__name__
    if isinstance(arrays, np.ndarray):
        got = f"{list(arrays.shape)} of {arrays.dtype}"
        if list(arrays.shape) == wanted and arrays.dtype.kind in "fiu":
            if isinstance(views, AugMix):
                return arrays
            low, high = float(arrays.min(initial=0)), float(arrays.max(initial=0))
            if low >= -_SLACK and high <= 255 + _SLACK:  # not if one is nan
                return arrays
            got = f"{low:g} to {high:g}"
    raise FairTTAError(
        f"`{name}` should give an array {wanted} of numbers from 0 to 255, all views but the image "
        f"itself (got {got} from {type(views).__name__}).",
        argument=name,
    )
