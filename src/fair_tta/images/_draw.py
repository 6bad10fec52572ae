"""Views from their recipes, one by one on the CPU; `_draw_batch` is the counterpart on devices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from fair_tta.images._augment import Pixels, Size

Chain: TypeAlias = tuple[partial[Pixels], ...]

# Numbers in all views below which threads cost more than they save.
_MIN_SIZE_FOR_THREADS = 2**21


@dataclass(frozen=True)
class Recipe:
    """All random choices for one view: a crop, and chains of operations to mix it with.

    Attributes:
        box: top, left, height and width of the crop, in pixels.
        flip: True to mirror the crop.
        weights: of the crop and of each chain; they sum to one.
        chains: operations of `_augment` with their keyword arguments, first one first.
    """

    box: tuple[int, int, int, int]
    flip: bool
    weights: tuple[float, ...] = (1.0,)
    chains: tuple[Chain, ...] = ()


def render_views(
    image: Image.Image, size: Size, recipes: list[Recipe]
) -> npt.NDArray[np.float32]:
    """Return the views of the recipes, ``[recipes, height, width, 3]`` from 0 to 255.

    Large ones are made on as many threads as torch uses.
    """
    pixels = np.array(to_rgb(image))
    views = np.empty((len(recipes), *size, 3), np.float32)
    threads = torch.get_num_threads()
    if threads == 1 or views.size < _MIN_SIZE_FOR_THREADS:
        for view, recipe in zip(views, recipes, strict=True):
            _render_view(pixels, recipe, view)
    else:
        with ThreadPoolExecutor(threads) as pool:
            jobs = pool.map(partial(_render_view, pixels), recipes, views)
            list(jobs)  # raises what a thread raised
    return views


def _render_view(pixels: Pixels, recipe: Recipe, view: npt.NDArray[np.float32]) -> None:
    """Write the view of a recipe into `view` ``[height, width, 3]``."""
    top, left, height, width = recipe.box
    part = pixels[top : top + height, left : left + width]
    crop = resize(part, view.shape[:2])
    if recipe.flip:
        crop = np.asarray(cv2.flip(crop, 1), np.uint8)

    # A running weighted mean: each chain gets its share of the weights so far.
    mixed = crop.astype(np.float32)
    total = recipe.weights[0]
    for weight, chain in zip(recipe.weights[1:], recipe.chains, strict=True):
        total += weight
        if weight > 0:
            augmented = crop
            for step in chain:
                augmented = step(augmented)
            cv2.accumulateWeighted(augmented, mixed, weight / total)
    np.minimum(mixed, 255, out=view)  # rounded weights may add up to more than one


def resize(pixels: Pixels, size: tuple[int, ...]) -> Pixels:
    """Return an array at another size, bilinear with antialiasing.

    At most 2 levels from PIL's result and several times faster.
    """
    # With a stride for the batch too: PyTorch is slower where it does not see channels last.
    height, width, channels = pixels.shape
    batch = np.ascontiguousarray(pixels).reshape(1, height, width, channels)
    scaled = torch.nn.functional.interpolate(
        torch.from_numpy(batch).permute(0, 3, 1, 2),
        size,
        mode="bilinear",
        antialias=True,
    )
    return np.ascontiguousarray(scaled[0].permute(1, 2, 0).numpy())


def to_rgb(image: Image.Image) -> Image.Image:
    """Return the image in three channels; itself if it has them."""
    return image if image.mode == "RGB" else image.convert("RGB")


class Renderer(Enum):
    """The code that draws views. The recipes are the same, so views differ by rounding only.

    Attributes:
        AUTO: `OPENCV` for a model on the CPU, `TENSORS` for one elsewhere.
        OPENCV: one by one on the CPU, with as many threads as torch uses.
        TENSORS: all views of several images at once where the model is. Slow on a CPU.
    """

    AUTO = "auto"
    OPENCV = "opencv"
    TENSORS = "tensors"

    def uses_tensors(self, device: torch.device) -> bool:
        """Return whether views for a model on this device are drawn as tensors."""
        if self is Renderer.AUTO:
            return device.type != "cpu"
        return self is Renderer.TENSORS
