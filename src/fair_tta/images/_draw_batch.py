"""Views from their recipes by tensor operations: all views of several images at once.

For models on devices; on the CPU OpenCV (`_draw`) is faster. Each operation takes the views
``[views, 3, height, width]`` in uint8 to which it applies, and numbers ``[views, 6]`` of which it
uses as many as it needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from fair_tta.images import _augment as augment
from fair_tta.images._augment import Matrix, Size, bit_mask, is_inside, rotation
from fair_tta.images._draw import Recipe, to_rgb

# Numbers between the two matrix products of a crop that are held at once: 128 MiB in float32.
_MAX_INTERMEDIATE_SIZE = 2**25

# Less than the smallest step, 1/255, and more than the rounding of float32: added before values
# are truncated, so that an integer that came out slightly too small remains that integer.
_TRUNCATION_MARGIN = 1e-3

_IDENTITY: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))

Operation = Callable[[Tensor, Tensor], Tensor]
"""``(views [views, 3, height, width], numbers [views, 6]) -> [views, 3, height, width]``"""


def render_batch(
    images: Sequence[Image.Image],
    size: Size,
    recipes: Sequence[Sequence[Recipe]],
    device: torch.device,
) -> Tensor:
    """Return the views of the recipes, made on the device, to which each image goes once.

    Images may have different sizes, but need equally many recipes. The views are
    ``[images, views, 3, height, width]``, from 0 to 255 in float32.
    """
    boxes = torch.tensor(
        [[(*recipe.box, recipe.flip) for recipe in row] for row in recipes],
        dtype=torch.float32,
    )
    # Images of one size are cropped together.
    arrays = [np.asarray(to_rgb(image)) for image in images]
    indices_by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, array in enumerate(arrays):
        indices_by_shape[array.shape].append(index)
    order: list[int] = []
    crops = []
    for indices in indices_by_shape.values():
        pixels = np.stack([arrays[index] for index in indices])
        crops.append(crop_batch(pixels, boxes[indices].to(device), size))
        order += indices

    # Then they go back into the order in which they came.
    cropped = torch.cat(crops)
    if len(crops) > 1:
        cropped = cropped[torch.tensor(order).argsort().to(device)]
    all_recipes = [recipe for row in recipes for recipe in row]
    return mix_chains(cropped.flatten(0, 1), all_recipes).reshape(cropped.shape)


def crop_batch(images: npt.NDArray[np.uint8], boxes: Tensor, size: Size) -> Tensor:
    """Return crops at another size, bilinear with antialiasing as in PIL.

    Rows are resampled first, then columns, each by a matrix product that is rounded as in PIL.

    Args:
        images: ``[images, height, width, 3]``.
        boxes: ``[images, views, 5]``: top, left, height, width, and 1 to mirror the crop.
        size: height and width of the crops.

    Returns:
        ``[images, views, 3, *size]`` in uint8, on the device of the boxes.
    """
    count, views = boxes.shape[:2]
    pixels = torch.from_numpy(images).to(boxes.device)
    height, width = pixels.shape[1:3]
    new_height, new_width = size
    columns = pixels.permute(0, 2, 3, 1).float()
    columns = columns.reshape(count, width, 3 * height)
    size_per_view = count * new_width * 3 * height
    views_at_once = max(1, _MAX_INTERMEDIATE_SIZE // size_per_view)
    crops = []
    for chunk in boxes.split(views_at_once, dim=1):
        top, left, box_height, box_width, flip = chunk.unbind(-1)
        no_flip = torch.zeros_like(flip)

        # [images, views * new_width, width] @ [images, width, 3 * height]
        x_weights = resampling_weights(left, box_width, width, new_width, flip)
        x_weights = x_weights.reshape(count, -1, width)
        resampled = (x_weights @ columns).round_()

        # [images * views, new_width * 3, height] @ [images * views, height, new_height]
        y_weights = resampling_weights(top, box_height, height, new_height, no_flip)
        y_weights = y_weights.flatten(0, 1).mT
        resampled = resampled.reshape(-1, new_width * 3, height)
        levels = (resampled @ y_weights).round_().clamp_(0, 255).to(torch.uint8)

        levels = levels.reshape(count, -1, new_width, 3, new_height)
        crops.append(levels.permute(0, 1, 3, 4, 2))
    return torch.cat(crops, 1).reshape(count, views, 3, *size)


def resampling_weights(
    start: Tensor, extent: Tensor, length: int, size: int, flip: Tensor
) -> Tensor:
    """Return the weights of the pixels of a line in each pixel of a resampled part of it.

    They are a triangle about the centre of the new pixel, as wide as two pixels, new or old,
    whichever are larger; pixels outside the part have weight zero.

    Args:
        start: first pixel of the part, ``[...]``.
        extent: its length, ``[...]``.
        length: of the line.
        size: length of the resampled part.
        flip: 1 to reverse the part, ``[...]``.

    Returns:
        ``[..., size, length]``; each row sums to one.
    """
    start = start[..., None, None]
    extent = extent[..., None, None]
    ratio = extent / size
    new = _pixel_centres(size, start)[:, None]
    new = torch.where(flip[..., None, None] > 0, size - new, new)
    centre = start + ratio * new
    old = _pixel_centres(length, start)
    distance = (old - centre).abs() / ratio.clamp(min=1)
    weights = (1 - distance).clamp(min=0)
    is_in_part = (old > start) & (old < start + extent)
    weights = weights * is_in_part
    return weights / weights.sum(-1, keepdim=True)


def _pixel_centres(count: int, like: Tensor) -> Tensor:
    """Return the positions of the centres of a line of pixels, which are one unit wide."""
    return torch.arange(count, device=like.device, dtype=like.dtype) + 0.5


def mix_chains(cropped: Tensor, recipes: list[Recipe]) -> Tensor:
    """Return the weighted sums of crops and chains: ``[views, 3, h, w] -> [views, 3, h, w]``."""
    height, width = cropped.shape[2:]
    chains_per_view = len(recipes[0].chains)
    chains = cropped.repeat_interleave(chains_per_view, 0)
    for group in _group_steps(recipes, (height, width), cropped.device):
        augmented = group.operation(chains.index_select(0, group.rows), group.numbers)
        chains.index_copy_(0, group.rows, augmented)

    weights = torch.tensor([recipe.weights for recipe in recipes]).to(cropped.device)
    chains = chains.unflatten(0, (-1, chains_per_view))
    crop_and_chains = torch.cat([cropped.unsqueeze(1), chains], 1)
    mixed = weights.unsqueeze(1) @ crop_and_chains.flatten(2).float()
    # Rounded weights may add up to more than one.
    return mixed.clamp(max=255).reshape(cropped.shape)


class _StepGroup(NamedTuple):
    """An operation, the chains that it applies to, and its numbers for each of them."""

    operation: Operation
    rows: Tensor
    numbers: Tensor


def _group_steps(
    recipes: list[Recipe], size: Size, device: torch.device
) -> list[_StepGroup]:
    """Group equal operations at the same position of their chains, first positions first."""
    groups: dict[tuple[int, Operation], list[tuple[int, Sequence[float]]]] = {}
    row = 0
    for recipe in recipes:
        for weight, chain in zip(recipe.weights[1:], recipe.chains, strict=True):
            steps = chain if weight > 0 else ()
            for position, step in enumerate(steps):
                tensor_step = _tensor_step(step, size)
                if tensor_step is not None:
                    operation, numbers = tensor_step
                    groups.setdefault((position, operation), []).append((row, numbers))
            row += 1

    # All rows and all numbers go to the device at once: each transfer makes it wait.
    keys = sorted(groups, key=lambda key: key[0])
    members = [member for key in keys for member in groups[key]]
    rows = torch.tensor([row for row, _ in members]).to(device)
    table = torch.tensor([numbers for _, numbers in members]).to(device)
    counts = [len(groups[key]) for key in keys]
    operations = [operation for _, operation in keys]
    return list(map(_StepGroup, operations, rows.split(counts), table.split(counts)))


def _tensor_step(
    step: partial[Any], size: Size
) -> tuple[Operation, Sequence[float]] | None:
    """Return the tensor operation for a step of a recipe and its six numbers.

    None if the step changes nothing.
    """
    amount = float(next(iter(step.keywords.values()), 0))
    if step.func is augment.autocontrast:
        return autocontrast_batch, [0.0] * 6
    if step.func is augment.equalize:
        return equalize_batch, [0.0] * 6
    if step.func is augment.posterize:
        return posterize_batch, [float(bit_mask(int(amount)))] * 6
    if step.func is augment.solarize:
        return None if amount >= 256 else (solarize_batch, [amount] * 6)
    if amount == 0:
        return None
    x_row, y_row = _warp_matrix(step.func, amount, size)
    return warp_batch, [*x_row, *y_row]


def _warp_matrix(operation: Callable[..., Any], amount: float, size: Size) -> Matrix:
    """Return the matrix that maps a pixel of the result to its source."""
    x_row, y_row = _IDENTITY
    if operation is augment.rotate:
        return rotation(*size, amount)
    if operation is augment.shear_x:
        return (1.0, amount, 0.0), y_row
    if operation is augment.translate_x:
        return (1.0, 0.0, amount), y_row
    if operation is augment.shear_y:
        return x_row, (amount, 1.0, 0.0)
    assert operation is augment.translate_y
    return x_row, (0.0, 1.0, amount)


def autocontrast_batch(views: Tensor, _numbers: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    low = views.amin((2, 3), keepdim=True).float()
    high = views.amax((2, 3), keepdim=True).float()
    scale = 255 / (high - low).clamp(min=1)
    stretched = ((views - low) * scale + _TRUNCATION_MARGIN).floor()
    return torch.where(high > low, stretched, views.float()).to(torch.uint8)


def equalize_batch(views: Tensor, _numbers: Tensor) -> Tensor:
    """Make the histogram of each channel as flat as a map of its levels can."""
    levels = views.flatten(2).long()
    shape = (*views.shape[:2], 256)
    count = torch.zeros(shape, dtype=torch.int32, device=views.device)
    ones = torch.ones_like(levels, dtype=torch.int32)
    count = count.scatter_add(2, levels, ones)
    below = count.cumsum(2, dtype=torch.int32) - count
    darker = torch.where(count > 0, below, 0)
    step = darker.amax(2, keepdim=True) // 255
    table = (step // 2 + below) // step.clamp(min=1)
    table = table.clamp(0, 255)
    unchanged = torch.arange(256, dtype=torch.int32, device=views.device)
    table = torch.where(step > 0, table, unchanged).to(torch.uint8)
    return table.gather(2, levels).view_as(views)


def posterize_batch(views: Tensor, numbers: Tensor) -> Tensor:
    """Keep those bits of each value that are set in the first number."""
    masks = numbers[:, 0].to(torch.uint8)
    return views & masks.reshape(-1, 1, 1, 1)


def solarize_batch(views: Tensor, numbers: Tensor) -> Tensor:
    """Invert the values that are at least the first number."""
    thresholds = numbers[:, 0].reshape(-1, 1, 1, 1)
    return torch.where(views >= thresholds, 255 - views, views)


def warp_batch(views: Tensor, numbers: Tensor) -> Tensor:
    """Take the colour at (x, y) from ``(a x + b y + c, d x + e y + f)``; black outside.

    The numbers are a to f. The centre of the first pixel is at (0.5, 0.5), as in PIL.
    """
    height, width = views.shape[2:]
    a, b, c, d, e, f = numbers[:, :, None, None].unbind(1)
    x = _pixel_centres(width, numbers)
    y = _pixel_centres(height, numbers)[:, None]
    source_x = a * x + b * y + c
    source_y = d * x + e * y + f
    # `grid_sample` wants positions from -1 to 1.
    grid_x = source_x * (2 / width) - 1
    grid_y = source_y * (2 / height) - 1
    grid = torch.stack([grid_x, grid_y], -1)
    moved = grid_sample(views.float(), grid, "bilinear", "border", align_corners=False)
    visible: Tensor = is_inside(source_x, width) & is_inside(source_y, height)
    return (moved.round() * visible.unsqueeze(1)).to(torch.uint8)
