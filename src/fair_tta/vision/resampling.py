"""Crops of many views at once, resampled by two matrix products."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_AT_ONCE = 2**25  # numbers between the two products


def crops(pictures: npt.NDArray[np.uint8], boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear with antialiasing, first along rows, then along columns, rounded after each as PIL.

    Args:
        pictures: ``[images, height, width, 3]``, all of one size. They go to the device so.
        boxes: ``[images, views, 5]``: top, left, height and width of the crop, and 1 if it is
            mirrored. On the device that is to do the work.
        size: height and width of the views.

    Returns:
        ``[images, views, 3, height, width]``, levels from 0 to 255 in uint8.
    """
    images, views = boxes.shape[:2]
    there = torch.from_numpy(pictures).to(boxes.device)
    height, width = there.shape[1:3]
    columns = there.permute(0, 2, 3, 1).float().reshape(images, width, 3 * height)
    made = []
    for some in boxes.split(max(1, _AT_ONCE // (images * size[1] * 3 * height)), dim=1):
        top, left, tall, broad, flip = some.unbind(-1)
        along = resampling_weights(left, broad, width, size[1], flip)
        down = resampling_weights(top, tall, height, size[0], torch.zeros_like(flip))
        narrow = (along.reshape(images, -1, width) @ columns).round_()
        levels = narrow.reshape(-1, 3 * size[1], height) @ down.flatten(0, 1).mT
        levels = levels.round_().clamp_(0, 255).to(torch.uint8)
        made.append(levels.reshape(images, -1, size[1], 3, size[0]).permute(0, 1, 3, 4, 2))
    return torch.cat(made, 1).reshape(images, views, 3, *size)


def resampling_weights(
    start: Tensor, extent: Tensor, length: int, size: int, flip: Tensor
) -> Tensor:
    """How much each pixel of a line counts for each pixel of the resampled part of it.

    A triangle about the place where the new pixel's centre was, as wide as two pixels, new or old,
    whichever are larger; what is outside of the part does not count.

    Args:
        start: ``[...]``, where the part begins.
        extent: ``[...]``, how long it is.
        length: of the line.
        size: of the resampled part.
        flip: ``[...]``, 1 to turn it round.

    Returns:
        ``[..., size, length]``; each row sums to one.
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
