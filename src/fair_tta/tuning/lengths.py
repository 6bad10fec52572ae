"""Lengths and directions of gradients of any size, also where there is no float64.

On the CPU numbers are widened to float64. Accelerators may have none (MPS), or a slow one; there
everything is divided by its largest number first, so that no square is lost or too large.
"""

from __future__ import annotations

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """In float64 on the CPU; elsewhere as it is, in float32 at least."""
    if x.device.type == "cpu":
        return x.double()
    return x if x.dtype == torch.float64 else x.float()


def length_and_direction(x: Tensor, dims: int = 1) -> tuple[Tensor, Tensor]:
    """Lengths over all but the first dimensions, and x divided by them.

    Args:
        x: ``[..., numbers]``
        dims: how many first dimensions are kept.

    Returns:
        ``[first dimensions]``, and the shape of `x`: zeros where the length is 0 and NaN where it
        is not finite.
    """
    x = wide(x)
    flat = x.flatten(dims)
    largest = flat.abs().amax(-1, keepdim=True)
    scaled = flat / torch.where(largest == 0, 1.0, largest)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    direction = scaled / torch.where(length == 0, 1.0, length)
    return (largest * length).squeeze(-1), direction.view_as(x)
