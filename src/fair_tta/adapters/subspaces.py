"""Spaces that features of prompts span, and what of a vector lies in them."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

_ROUNDING = 1e-6  # a direction that is shorter, or so much shorter than the longest, is none


def basis_of(rows: Tensor) -> Tensor:
    """Orthonormal rows that span what `rows` span: ``[..., n, dim] -> [..., min(n, dim), dim]``.

    In float64. Where rows depend on one another, or are zero, there are rows of zeros.
    """
    _, sizes, basis = torch.linalg.svd(rows.double(), full_matrices=False)
    rank = sizes > (sizes[..., :1] * _ROUNDING).clamp(min=_ROUNDING)
    spanned: Tensor = basis * rank.unsqueeze(-1)
    return spanned


def part_within(x: Tensor, rows: Tensor) -> Tensor:
    """What of each row of x lies in the span of `rows`, in float64: ``[..., n, dim]``."""
    basis = basis_of(rows)
    part: Tensor = x.double() @ basis.mT @ basis
    return part


def project_out(x: Tensor, rows: Tensor) -> Tensor:
    """Each row of x without its part in the span of `rows`, in float64: ``[..., n, dim]``."""
    return x.double() - part_within(x, rows)


def pair_differences(rows: Tensor) -> Tensor:
    """``z_i - z_j`` of all pairs of rows: ``[..., n, dim] -> [..., n (n - 1) / 2, dim]``."""
    first, second = zip(*combinations(range(rows.shape[-2]), 2), strict=True)
    differences: Tensor = rows[..., list(first), :] - rows[..., list(second), :]
    return differences
