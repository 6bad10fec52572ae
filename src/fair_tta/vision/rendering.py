"""Views made from their recipes, in bulk."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from fair_tta.vision.augment import Pixels

_SMALL = 2**21  # numbers in all views, below which threads cost more than they save


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
    """Makes the views of the recipes; large ones on as many threads as torch uses."""
    picture = np.array(rgb(image))
    views = np.empty((len(recipes), *size, 3), np.float32)

    def make(view: npt.NDArray[np.float32], recipe: Recipe) -> None:
        top, left, height, width = recipe.box
        crop = resize(picture[top : top + height, left : left + width], size)
        if recipe.flip:
            crop = np.asarray(cv2.flip(crop, 1), np.uint8)
        if not recipe.chains:
            view[:] = crop
            return
        mixed = crop.astype(np.float32)
        total = recipe.weights[0]
        for weight, chain in zip(recipe.weights[1:], recipe.chains, strict=True):
            total += weight
            if weight > 0:
                pixels = functools.reduce(lambda result, step: step(result), chain, crop)
                cv2.accumulateWeighted(pixels, mixed, weight / total)
        np.minimum(mixed, 255, out=view)  # rounded weights may add up to more than one

    def share(first: int) -> None:
        for view, recipe in zip(views[first::threads], recipes[first::threads], strict=True):
            make(view, recipe)

    threads = 1 if views.size < _SMALL else torch.get_num_threads()
    if threads == 1:
        share(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, range(threads)))
    return views


def resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Bilinear with antialiasing, at most 1 level from PIL's and several times faster."""
    batch = np.ascontiguousarray(pixels).reshape(1, *pixels.shape).transpose(0, 3, 1, 2)
    scaled = torch.nn.functional.interpolate(
        torch.from_numpy(batch), size, mode="bilinear", antialias=True
    )
    return np.ascontiguousarray(scaled.numpy().transpose(0, 2, 3, 1)[0])


def rgb(image: Image.Image) -> Image.Image:
    """The image in three channels, itself if it has them."""
    return image if image.mode == "RGB" else image.convert("RGB")
