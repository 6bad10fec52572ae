"""Views drawn from their recipes: by OpenCV on the CPU, by tensor operations elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from fair_tta.images._augment import Pixels, rotation

_AT_ONCE = 2**25  # numbers between the two products


def crop_batch(
    images: npt.NDArray[np.uint8], boxes: Tensor, size: tuple[int, int]
) -> Tensor:
    """Bilinear with antialiasing, first along rows, then along columns, rounded after each as PIL.

    From images ``[images, height, width, 3]`` and boxes ``[images, views, 5]`` (top, left, height,
    width, and 1 to mirror), on the device of the boxes: ``[images, views, 3, *size]`` in uint8.
    """
    count, views = boxes.shape[:2]
    there = torch.from_numpy(images).to(boxes.device)
    height, width = there.shape[1:3]
    columns = there.permute(0, 2, 3, 1).float().reshape(count, width, 3 * height)
    made = []
    for some in boxes.split(max(1, _AT_ONCE // (count * size[1] * 3 * height)), dim=1):
        top, left, tall, broad, flip = some.unbind(-1)
        along = resampling_weights(left, broad, width, size[1], flip)
        down = resampling_weights(top, tall, height, size[0], torch.zeros_like(flip))
        narrow = (along.reshape(count, -1, width) @ columns).round_()
        levels = narrow.reshape(-1, 3 * size[1], height) @ down.flatten(0, 1).mT
        levels = levels.round_().clamp_(0, 255).to(torch.uint8)
        made.append(
            levels.reshape(count, -1, size[1], 3, size[0]).permute(0, 1, 3, 4, 2)
        )
    return torch.cat(made, 1).reshape(count, views, 3, *size)


def resampling_weights(
    start: Tensor, extent: Tensor, length: int, size: int, flip: Tensor
) -> Tensor:
    """How much each pixel of a line counts for each of the `size` pixels of a resampled part of it.

    A triangle about the place where the new pixel's centre was, as wide as two pixels, new or old,
    whichever are larger; what is outside of the part does not count. `start`, `extent` and `flip`
    (1 to turn the part round) have any shape ``[...]``; the result is ``[..., size, length]``.
    """
    ratio = (extent / size)[..., None, None]
    new = torch.arange(size, device=start.device, dtype=start.dtype)[:, None] + 0.5
    new = torch.where(flip[..., None, None] > 0, size - new, new)
    centre = start[..., None, None] + ratio * new
    old = torch.arange(length, device=start.device, dtype=start.dtype) + 0.5
    weights = (1 - (old - centre).abs() / ratio.clamp(min=1)).clamp(min=0)
    inside = (old > start[..., None, None]) & (old < (start + extent)[..., None, None])
    weights = weights * inside
    return weights / weights.sum(-1, keepdim=True)


_FEW = 1e-3  # less than the smallest step, 1/255, and more than float32 loses


def autocontrast(x: Tensor, _: Tensor) -> Tensor:
    """Stretches each channel: its darkest value becomes 0, its brightest 255."""
    low, high = (
        x.amin((2, 3), keepdim=True).float(),
        x.amax((2, 3), keepdim=True).float(),
    )
    stretched = ((x - low) * (255 / (high - low).clamp(min=1)) + _FEW).floor()
    return torch.where(high > low, stretched, x.float()).to(torch.uint8)


def equalize(x: Tensor, _: Tensor) -> Tensor:
    """Makes the histogram of each channel as flat as a map of its levels can."""
    levels = x.flatten(2).long()
    count = torch.zeros(*x.shape[:2], 256, dtype=torch.int32, device=x.device)
    count = count.scatter_add(2, levels, torch.ones_like(levels, dtype=torch.int32))
    below = count.cumsum(2, dtype=torch.int32) - count
    step = torch.where(count > 0, below, 0).amax(2, keepdim=True) // 255
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(0, 255)
    same = torch.arange(256, dtype=torch.int32, device=x.device)
    table = torch.where(step > 0, table, same).to(torch.uint8)
    return table.gather(2, levels).view_as(x)


def posterize(x: Tensor, numbers: Tensor) -> Tensor:
    """Keeps those bits of each value that are in the first number."""
    return x & numbers[:, 0, None, None, None].to(torch.uint8)


def solarize(x: Tensor, numbers: Tensor) -> Tensor:
    """Inverts the values from the first number on."""
    return torch.where(x >= numbers[:, 0, None, None, None], 255 - x, x)


def warp(x: Tensor, numbers: Tensor) -> Tensor:
    """The colour at (x, y) comes from ``a x + b y + c, d x + e y + f``; black outside.

    The numbers are a to f. The centre of the first pixel is at (0.5, 0.5), as in PIL.
    """
    height, width = x.shape[2:]
    a, b, c, d, e, f = (n[:, None, None] for n in numbers.unbind(1))
    across = torch.arange(width, device=x.device, dtype=numbers.dtype) + 0.5
    down = torch.arange(height, device=x.device, dtype=numbers.dtype)[:, None] + 0.5
    from_x, from_y = a * across + b * down + c, d * across + e * down + f
    grid = torch.stack([from_x * (2 / width) - 1, from_y * (2 / height) - 1], -1)
    moved = grid_sample(
        x.float(), grid, "bilinear", "border", align_corners=False
    ).round()
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    return (moved * inside.unsqueeze(1)).to(torch.uint8)


_SMALL = 2**21  # numbers in all views, below which threads cost more than they save


@dataclass(frozen=True)
class Recipe:
    """All that was drawn for one view: a crop, and chains of operations to mix it with."""

    box: tuple[int, int, int, int]  # top, left, height, width
    flip: bool
    weights: tuple[float, ...] = (
        1.0,
    )  # of the crop itself and of each chain: they sum to one
    chains: tuple[tuple[partial[Pixels], ...], ...] = ()


def render_views(
    image: Image.Image, size: tuple[int, int], recipes: list[Recipe]
) -> npt.NDArray[np.float32]:
    """Makes the views of the recipes; large ones on as many threads as torch uses."""
    pixels = np.array(to_rgb(image))
    views = np.empty((len(recipes), *size, 3), np.float32)

    def make(view: npt.NDArray[np.float32], recipe: Recipe) -> None:
        top, left, height, width = recipe.box
        crop = resize(pixels[top : top + height, left : left + width], size)
        if recipe.flip:
            crop = np.asarray(cv2.flip(crop, 1), np.uint8)
        mixed = crop.astype(np.float32)
        total = recipe.weights[0]
        for weight, chain in zip(recipe.weights[1:], recipe.chains, strict=True):
            total += weight
            if weight > 0:
                changed = functools.reduce(
                    lambda result, step: step(result), chain, crop
                )
                cv2.accumulateWeighted(changed, mixed, weight / total)
        np.minimum(mixed, 255, out=view)  # rounded weights may add up to more than one

    threads = torch.get_num_threads() if views.size >= _SMALL else 1
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        list((map if pool is None else pool.map)(make, views, recipes))
    return views


def resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Bilinear with antialiasing, at most 2 levels from PIL's and several times faster."""
    batch = np.ascontiguousarray(pixels).reshape(1, *pixels.shape).transpose(0, 3, 1, 2)
    scaled = torch.nn.functional.interpolate(
        torch.from_numpy(batch), size, mode="bilinear", antialias=True
    )
    return np.ascontiguousarray(scaled.numpy().transpose(0, 2, 3, 1)[0])


def to_rgb(image: Image.Image) -> Image.Image:
    """The image in three channels, itself if it has them."""
    return image if image.mode == "RGB" else image.convert("RGB")


Operation = Callable[[Tensor, Tensor], Tensor]


def render_batch(
    images: Sequence[Image.Image],
    size: tuple[int, int],
    recipes: Sequence[Sequence[Recipe]],
    device: torch.device,
) -> Tensor:
    """Makes the views of the recipes on the device, where each image goes once, as it is.

    Images may have any sizes, but each as many recipes. The views are
    ``[images, views, 3, height, width]``, from 0 to 255 in float32.
    """
    boxes = torch.tensor(
        [[(*recipe.box, recipe.flip) for recipe in own] for own in recipes],
        dtype=torch.float32,
    )
    arrays = [np.asarray(to_rgb(image)) for image in images]
    by_size: dict[tuple[int, ...], list[int]] = {}
    for place, array in enumerate(arrays):
        by_size.setdefault(array.shape, []).append(place)
    parts = [
        crop_batch(
            np.stack([arrays[i] for i in places]), boxes[places].to(device), size
        )
        for places in by_size.values()
    ]
    cropped = torch.cat(parts)
    if len(parts) > 1:
        order = torch.tensor([place for places in by_size.values() for place in places])
        cropped = cropped[order.argsort().to(device)]
    mixed = mix_chains(
        cropped.flatten(0, 1), [recipe for own in recipes for recipe in own]
    )
    return mixed.reshape(cropped.shape)


def mix_chains(cropped: Tensor, recipes: list[Recipe]) -> Tensor:
    """Chains of operations, and the weighted sum of crop and chains: ``[views, 3, h, w]``."""
    device, width = cropped.device, len(recipes[0].chains)
    height, broad = cropped.shape[2:]
    states = cropped.repeat_interleave(width, 0)
    for rows, numbers, operation in _steps(recipes, (height, broad), device):
        states.index_copy_(0, rows, operation(states.index_select(0, rows), numbers))
    weights = torch.tensor([recipe.weights for recipe in recipes]).to(device)
    every = torch.cat([cropped.unsqueeze(1), states.unflatten(0, (-1, width))], 1)
    mixed = weights.unsqueeze(1) @ every.flatten(2).float()
    return mixed.clamp(max=255).reshape(cropped.shape)


def _steps(
    recipes: list[Recipe], size: tuple[int, int], device: torch.device
) -> list[tuple[Tensor, Tensor, Operation]]:
    """What to do with which rows, first steps first; rows and numbers go to the device at once."""
    found: dict[tuple[int, str], list[tuple[int, tuple[float, ...]]]] = {}
    chains = [
        chain
        for recipe in recipes
        for chain in zip(recipe.weights[1:], recipe.chains, strict=True)
    ]
    for row, (weight, steps) in enumerate(chains):
        for depth, step in enumerate(steps if weight > 0 else ()):
            name, numbers = _in_numbers(step, size)
            if name:
                found.setdefault((depth, name), []).append((row, numbers))
    groups = sorted(found.items())
    rows = torch.tensor([row for _, some in groups for row, _ in some]).to(device)
    table = torch.tensor([numbers for _, some in groups for _, numbers in some])
    counts = [len(some) for _, some in groups]
    operations: list[Operation] = [globals()[name] for (_, name), _ in groups]
    return list(
        zip(rows.split(counts), table.to(device).split(counts), operations, strict=True)
    )


def _in_numbers(
    step: partial[Any], size: tuple[int, int]
) -> tuple[str, tuple[float, ...]]:
    """Which of the operations above a step is, "" if it changes nothing, and its six numbers."""
    name, amount = step.func.__name__, float(next(iter(step.keywords.values()), 0))
    if name in ("autocontrast", "equalize"):
        return name, (0.0,) * 6
    if name == "posterize":
        return name, (float(0xFF & ~(0xFF >> int(amount))),) * 6
    if name == "solarize":
        return name if amount < 256 else "", (amount,) * 6
    if name == "rotate":
        first, second = rotation(*size, amount)
        return "warp" if amount else "", (*first, *second)
    matrix = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    matrix[{"shear_x": 1, "translate_x": 2, "shear_y": 3, "translate_y": 5}[name]] = (
        amount
    )
    return "warp" if amount else "", tuple(matrix)


class Renderer(Enum):
    """Who draws views. The recipes are the same, so views differ by rounding only.

    Attributes:
        AUTO: `OPENCV` for a model on the CPU, `TENSORS` for one elsewhere.
        OPENCV: one by one on the CPU, with as many threads as torch uses.
        TENSORS: all views of several images at once where the model is. Slow on a CPU.
    """

    AUTO = "auto"
    OPENCV = "opencv"
    TENSORS = "tensors"

    def uses_tensors(self, device: torch.device) -> bool:
        """Whether views for a model on this device are drawn as tensors."""
        return self is Renderer.TENSORS or (
            self is Renderer.AUTO and device.type != "cpu"
        )
