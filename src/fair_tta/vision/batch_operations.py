"""The nine operations of AugMix on many pictures at once, each with a parameter of its own.

Pictures are ``[pictures, 3, height, width]`` in uint8, on any device. Against `augment`, which does
them one by one: autocontrast is what PIL means, its division exact; warps agree to rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

_FEW = 1e-3  # less than the smallest step, 1/255, and more than float32 loses


def autocontrast(x: Tensor, _: Tensor) -> Tensor:
    """Stretches each channel: its darkest value becomes 0, its brightest 255."""
    low, high = x.amin((2, 3), keepdim=True).float(), x.amax((2, 3), keepdim=True).float()
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
    a, b, c, d, e, f = (n[:, None, None] for n in numbers[:, :6].unbind(1))
    across = torch.arange(width, device=x.device, dtype=numbers.dtype) + 0.5
    down = torch.arange(height, device=x.device, dtype=numbers.dtype)[:, None] + 0.5
    from_x, from_y = a * across + b * down + c, d * across + e * down + f
    grid = torch.stack([from_x * (2 / width) - 1, from_y * (2 / height) - 1], -1)
    moved = grid_sample(x.float(), grid, "bilinear", "border", align_corners=False).round()
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    return (moved * inside.unsqueeze(1)).to(torch.uint8)


def shear_matrix(across: float, down: float) -> tuple[float, ...]:
    """For `warp`."""
    return 1.0, across, 0.0, down, 1.0, 0.0


def shift_matrix(across: float, down: float) -> tuple[float, ...]:
    """For `warp`: pixels to the left and up."""
    return 1.0, 0.0, across, 0.0, 1.0, down


def rotation_matrix(height: int, width: int, degrees: float) -> tuple[float, ...]:
    """For `warp`: counter-clockwise about the centre."""
    angle = -math.radians(degrees % 360)
    cos, sin = math.cos(angle), math.sin(angle)
    right = width / 2 - cos * width / 2 - sin * height / 2
    down = height / 2 + sin * width / 2 - cos * height / 2
    return cos, sin, right, -sin, cos, down
