"""Destroyed copies of pictures: what is left when their patches change places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate


@dataclass(frozen=True)
class PatchShuffle:
    """Cuts each picture into a grid of patches and shuffles these, each picture in its own way.

    A picture whose height or width is no multiple of `patches` is made a little smaller for it,
    and enlarged again afterwards.

    Args:
        patches: how many in a row and in a column.

    Example:
        >>> pixels = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> shuffled = PatchShuffle(4)(pixels, np.random.default_rng(0))
        >>> torch.equal(shuffled.flatten().sort().values, pixels.flatten())
        True
    """

    patches: int = 4

    def __call__(self, pixels: Tensor, generator: np.random.Generator) -> Tensor:
        """``[n, channels, height, width] -> [n, channels, height, width]``."""
        n, grid, size = len(pixels), self.patches, pixels.shape[-2:]
        height, width = (max(1, edge // grid) for edge in size)
        fitting = _resized(pixels, (grid * height, grid * width))
        parts = fitting.unflatten(3, (grid, width)).unflatten(2, (grid, height))
        parts = parts.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # [n, patches, channels, h, w]
        order = torch.from_numpy(generator.random((n, grid * grid)).argsort(1)).to(pixels.device)
        parts = parts[torch.arange(n, device=pixels.device)[:, None], order]
        parts = parts.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)
        return _resized(parts.reshape(fitting.shape), (size[0], size[1]))


def _resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    if pixels.shape[-2:] == size:
        return pixels
    return interpolate(pixels, size, mode="bilinear", antialias=True)
