"""AugMix views one picture at a time with PIL: slow, plain, and without any code of fair_tta.

`replay` makes the views of given recipes; `reference_views` draws its own and takes the same steps
as the public TPT code (four pictures per view become normalised tensors), for timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]

# Most levels between a bilinear warp of OpenCV and PIL's: OpenCV 5 rounds where PIL cuts off, and
# OpenCV 4 rounds positions to 1/32 pixel besides.
WARP_LEVELS = 1 if int(cv2.__version__.split(".")[0]) >= 5 else 9


class Drawn(Protocol):
    """What was drawn for a view: see fair_tta.images._draw.Recipe."""

    @property
    def box(self) -> tuple[int, int, int, int]: ...
    @property
    def flip(self) -> bool: ...
    @property
    def weights(self) -> tuple[float, ...]: ...
    @property
    def chains(self) -> tuple[tuple[partial[Any], ...], ...]: ...


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR
    )


OPS: dict[str, Callable[..., Image.Image]] = {
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "posterize": lambda image, bits: ImageOps.posterize(image, bits),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),
    "rotate": lambda image, degrees: image.rotate(
        degrees, resample=Image.Resampling.BILINEAR
    ),
    "shear_x": lambda image, level: affine(image, 1, level, 0, 0, 1, 0),
    "shear_y": lambda image, level: affine(image, 1, 0, 0, level, 1, 0),
    "translate_x": lambda image, pixels: affine(image, 1, 0, pixels, 0, 1, 0),
    "translate_y": lambda image, pixels: affine(image, 1, 0, 0, 0, 1, pixels),
}


def replay(
    image: Image.Image, size: tuple[int, int], recipes: Sequence[Drawn]
) -> npt.NDArray[np.float64]:
    """The views [recipes, height, width, 3] that the recipes describe."""
    return np.stack([_replay_one(image, size, recipe) for recipe in recipes])


def _replay_one(
    image: Image.Image, size: tuple[int, int], recipe: Drawn
) -> npt.NDArray[np.float64]:
    crop = crop_flip(image, size, recipe.box, recipe.flip)
    pictures = [crop]
    for chain in recipe.chains:
        pictures.append(crop)
        for step in chain:
            pictures[-1] = OPS[step.func.__name__](pictures[-1], **step.keywords)
    view = np.zeros((*size, 3))
    for weight, picture in zip(recipe.weights, pictures, strict=True):
        view += weight * np.asarray(picture, np.float64)
    return view


def crop_flip(
    image: Image.Image,
    size: tuple[int, int],
    box: tuple[int, int, int, int],
    flip: bool,
) -> Image.Image:
    top, remaining, height, width = box
    crop = image.crop((remaining, top, remaining + width, top + height))
    crop = crop.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return ImageOps.mirror(crop) if flip else crop


def reference_views(
    image: Image.Image, n: int, size: tuple[int, int], rng: np.random.Generator
) -> Tensor:
    """The n - 1 random views, normalised: [n - 1, 3, height, width]."""
    return torch.stack([_random_view(image, size, rng) for _ in range(n - 1)])


def _random_view(
    image: Image.Image, size: tuple[int, int], rng: np.random.Generator
) -> Tensor:
    crop = crop_flip(image, size, _random_box(image, rng), rng.random() < 0.5)
    weights = rng.dirichlet([1.0] * 3)
    skip = rng.beta(1, 1)
    mix = torch.zeros(3, *size)
    for weight in weights:
        picture = crop
        for _ in range(rng.integers(1, 4)):
            picture = _random_op(picture, rng)
        mix += float(weight) * _normalise(picture)
    return skip * _normalise(crop) + (1 - skip) * mix


def _random_box(
    image: Image.Image, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    while True:
        area = image.width * image.height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if width <= image.width and height <= image.height:
            top = int(rng.integers(image.height - height + 1))
            return top, int(rng.integers(image.width - width + 1)), height, width


def _random_op(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    part = rng.uniform(0.1, 1) / 10
    sign = rng.choice([-1, 1])
    parameters: dict[str, tuple[float, ...]] = {
        "autocontrast": (),
        "equalize": (),
        "posterize": (4 - int(4 * part),),
        "solarize": (256 - int(256 * part),),
        "rotate": (sign * int(30 * part),),
        "shear_x": (sign * 0.3 * part,),
        "shear_y": (sign * 0.3 * part,),
        "translate_x": (sign * int(image.width / 3 * part),),
        "translate_y": (sign * int(image.height / 3 * part),),
    }
    name = list(parameters)[rng.integers(9)]
    return OPS[name](image, *parameters[name])


def _normalise(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float()
    return (pixels / 255 - MEAN) / STD
