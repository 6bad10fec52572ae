"""Views of several images as batched tensor operations, on any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fair_tta.vision import augment
from fair_tta.vision import batch_operations as batch
from fair_tta.vision.rendering import Recipe, rgb
from fair_tta.vision.resampling import crops

_NUMBERS = 6  # parameters of an operation, at most
Operation = Callable[[Tensor, Tensor], Tensor]


def render_batch(
    images: Sequence[Image.Image],
    size: tuple[int, int],
    recipes: Sequence[Sequence[Recipe]],
    device: torch.device,
) -> Tensor:
    """Makes the views of the recipes; each image goes to the device once, as it is.

    Args:
        images: of any sizes; those of one size are cropped together.
        size: height and width of the views.
        recipes: for each image, as many for one as for another.
        device: where to do it.

    Returns:
        ``[images, views, 3, height, width]``, from 0 to 255 in float32.
    """
    boxes = torch.tensor(
        [[(*recipe.box, recipe.flip) for recipe in own] for own in recipes], dtype=torch.float32
    ).to(device)
    pictures = [np.asarray(rgb(image)) for image in images]
    by_size: dict[tuple[int, ...], list[int]] = {}
    for place, picture in enumerate(pictures):
        by_size.setdefault(picture.shape, []).append(place)
    order = [place for places in by_size.values() for place in places]
    parts = [
        crops(np.stack([pictures[i] for i in places]), _rows(boxes, places), size)
        for places in by_size.values()
    ]
    cropped = torch.cat(parts)
    if order != sorted(order):
        cropped = _rows(cropped, sorted(range(len(order)), key=order.__getitem__))
    mixed = _mixed(cropped.flatten(0, 1), [recipe for own in recipes for recipe in own])
    return mixed.reshape(cropped.shape)


def _mixed(cropped: Tensor, recipes: list[Recipe]) -> Tensor:
    """Chains of operations, and the weighted sum of crop and chains: ``[views, 3, h, w]``."""
    if not any(recipe.chains for recipe in recipes):
        return cropped.float()
    device, width = cropped.device, max(len(recipe.chains) for recipe in recipes)
    height, broad = cropped.shape[2:]
    states = cropped.repeat_interleave(width, 0)
    for rows, numbers, operation in _steps(recipes, width, (height, broad), device):
        states.index_copy_(0, rows, operation(states.index_select(0, rows), numbers))
    weights = torch.tensor(
        [recipe.weights + (0.0,) * (1 + width - len(recipe.weights)) for recipe in recipes]
    ).to(device)
    every = torch.cat([cropped.unsqueeze(1), states.unflatten(0, (-1, width))], 1)
    mixed = weights.unsqueeze(1) @ every.flatten(2).float()
    return mixed.clamp(max=255).reshape(cropped.shape)


def _steps(
    recipes: list[Recipe], width: int, size: tuple[int, int], device: torch.device
) -> list[tuple[Tensor, Tensor, Operation]]:
    """What to do with which rows, first steps first; rows and numbers go to the device at once."""
    found: dict[tuple[int, str], list[tuple[int, tuple[float, ...]]]] = {}
    for view, recipe in enumerate(recipes):
        for chain, steps in enumerate(recipe.chains):
            if recipe.weights[1 + chain] > 0:
                for depth, step in enumerate(steps):
                    name, numbers = _in_numbers(step, size)
                    if name:
                        row = view * width + chain
                        found.setdefault((depth, name), []).append((row, numbers))
    groups = sorted(found.items())
    rows = torch.tensor([row for _, some in groups for row, _ in some]).to(device)
    table = torch.tensor(
        [numbers + (0.0,) * (_NUMBERS - len(numbers)) for _, some in groups for _, numbers in some]
    ).reshape(-1, _NUMBERS).to(device)  # fmt: skip
    counts = [len(some) for _, some in groups]
    operations: list[Operation] = [getattr(batch, name) for (_, name), _ in groups]
    return list(zip(rows.split(counts), table.split(counts), operations, strict=True))


def _in_numbers(step: partial[Any], size: tuple[int, int]) -> tuple[str, tuple[float, ...]]:
    """Which of `batch_operations` a step is, "" if it changes nothing, and its numbers."""
    height, width = size
    amount: Any = next(iter(step.keywords.values()), None)
    if step.func in (augment.autocontrast, augment.equalize):
        return step.func.__name__, ()
    if step.func is augment.posterize:
        return "posterize", (float(0xFF & ~(0xFF >> amount)),)
    if step.func is augment.solarize:
        return ("solarize" if amount < 256 else "", (float(amount),))
    if amount == 0:
        return "", ()
    if step.func is augment.rotate:
        return "warp", batch.rotation_matrix(height, width, amount)
    if step.func in (augment.shear_x, augment.shear_y):
        is_x = step.func is augment.shear_x
        return "warp", batch.shear_matrix(*((amount, 0.0) if is_x else (0.0, amount)))
    is_x = step.func is augment.translate_x
    return "warp", batch.shift_matrix(*((amount, 0.0) if is_x else (0.0, amount)))


def _rows(tensor: Tensor, places: list[int]) -> Tensor:
    """Some rows, without a copy if it is all of them in order."""
    if places == list(range(len(tensor))):
        return tensor
    return tensor.index_select(0, torch.tensor(places).to(tensor.device))
