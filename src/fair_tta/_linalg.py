"""Unit features, lengths of gradients, and spaces that features of prompts span.

Small linear algebra happens on the CPU in float64, wherever the model is.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

_UNIT = 1e-5  # how far the length of unit features may be from one
_SHORTEST, _LONGEST = 1e-9, 1e9  # between them squares keep their digits


def to_cpu_float64(x: Tensor) -> Tensor:
    """The same on the CPU in float64."""
    return x.cpu().double()  # some devices have no float64


@cache
def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64; some do not."""
    try:
        torch.ones(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def length_and_direction(x: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths over all but the first dimension, and x divided by them.

    Both are on the CPU in float64: zeros where the length is 0 and NaN where it is not finite.
    """
    x = to_cpu_float64(x)
    flat = x.flatten(1)
    largest = flat.abs().amax(-1, keepdim=True)
    scaled = flat / torch.where(largest == 0, 1.0, largest)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    direction = scaled / torch.where(length == 0, 1.0, length)
    return (largest * length).squeeze(-1), direction.view_as(x)


_UNITS = 4  # how many bounds of rounding are one that is safe; see `rounding_floor`


def rounding_floor(dim: int, dtype: torch.dtype) -> float:
    """Return how long what a projection leaves of a feature must be, relative to the feature.

    What is shorter may be rounding alone, and dividing by its length would make an answer of it.

    Args:
        dim: numbers in a feature.
        dtype: in which the features were made; a later conversion to a wider one adds no digits.
    """
    # With eps the distance from 1 to the next number of a dtype:
    # - each number of a feature is rounded by at most eps / 2 of its size, so the feature is by at
    #   most eps / 2 of its length;
    # - what makes it are sums of `dim` products, which are off by at most dim eps / 2 of what the
    #   factors' lengths make (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1),
    #   with the eps of float32, because products in half precision are summed in float32;
    # - if x = sum_i c_i r_i is in the span of rows, the projection leaves the errors of x and of
    #   c_i r_i: 1 + sum_i |c_i| such halves. Four times the two whole eps are 8 halves, which
    #   allows for a sum of 7.
    # Seen on text features of OpenAI's ViT-B/32 (1,703 of facebookresearch/Detic): combinations of
    # up to 20 of them leave at most 0.53 eps in float32, float16 and bfloat16, other names of
    # things at least 0.28 beside "a Man" and "a Woman"; the floor is 0.0002, 0.004 and 0.03 there.
    stored = torch.finfo(dtype).eps
    summed = dim * min(stored, torch.finfo(torch.float32).eps)
    return _UNITS * (stored + summed)


def least_precise_dtype(*dtypes: torch.dtype) -> torch.dtype:
    """Return the dtype with the fewest digits."""
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def is_rounding(rest: Tensor, before: Tensor, floor: float) -> Tensor:
    """Return of which rows only rounding is left: ``[..., n, dim], [..., n, dim] -> [..., n]``."""
    # a difference and not `<`, because the export to ONNX knows this one; lengths alone may have
    # to go to another device
    lacking = floor * before.norm(dim=-1).to(rest) - rest.norm(dim=-1)
    is_less: Tensor = lacking > 0
    return is_less


def is_near_duplicate(rows: Tensor, floor: float) -> Tensor:
    """Return which rows are nearer to another row than `floor`: ``[..., n, dim] -> [..., n]``."""
    squares = rows.square().sum(-1)
    distances = squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * rows @ rows.mT
    itself = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
    nearest: Tensor = (distances + 4 * itself).amin(
        -1
    )  # no unit features are farther apart than 2
    return nearest < floor**2


_ROUNDING = (
    1e-6  # a direction that is shorter, or so much shorter than the longest, is none
)


def orthonormal_basis(rows: Tensor) -> Tensor:
    """Orthonormal rows that span what `rows` span: ``[..., n, dim] -> [..., min(n, dim), dim]``.

    Where rows depend on one another, or are zero, there are rows of zeros.
    """
    if rows.shape[-2] == 1:
        length = to_cpu_float64(rows).norm(dim=-1, keepdim=True)
        return torch.where(length > _ROUNDING, to_cpu_float64(rows) / length, 0.0)
    _, sizes, basis = torch.linalg.svd(to_cpu_float64(rows), full_matrices=False)
    rank = sizes > (sizes[..., :1] * _ROUNDING).clamp(min=_ROUNDING)
    spanned: Tensor = basis * rank.unsqueeze(-1)
    return spanned


def project_onto(x: Tensor, rows: Tensor) -> Tensor:
    """The part of each row of x in the span of `rows`: ``[..., n, dim]``."""
    if not rows.shape[-2]:
        return torch.zeros(x.shape, dtype=torch.float64, device="cpu")
    basis = orthonormal_basis(rows)
    part: Tensor = to_cpu_float64(x) @ basis.mT @ basis
    return part


def project_out(x: Tensor, rows: Tensor) -> Tensor:
    """Each row of x without its part in the span of `rows`: ``[..., n, dim]``."""
    return to_cpu_float64(x) - project_onto(x, rows)


def pair_differences(rows: Tensor) -> Tensor:
    """``z_i - z_j`` of all pairs of rows: ``[..., n, dim] -> [..., n (n - 1) / 2, dim]``."""
    pairs = combinations(rows.unbind(-2), 2)
    return torch.stack([first - second for first, second in pairs], -2)


def subtract_mean(values: Tensor, dim: int) -> Tensor:
    """Minus the mean along a dimension."""
    return values - values.mean(dim, keepdim=True)


def unit_features(features: Tensor) -> Tensor:
    """Features of length one, in float32 (float64 stays)."""
    return normalize(
        features if features.dtype == torch.float64 else features.float(), dim=-1
    )


def describe_shape(value: Any) -> Any:
    """The shape of a tensor, or else the type, for messages."""
    return (
        list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
    )


def ensure_unit_length(features: Tensor, length: Tensor | None = None) -> Tensor:
    """Features of any length as unit features; those that are stay so, to the last digit."""
    length = features.norm(dim=-1) if length is None else length
    is_unit = (length - 1).abs() < _UNIT
    if bool(is_unit.all()):
        return features
    if bool(((length > _SHORTEST) & (length < _LONGEST)).all()):
        return features * torch.where(is_unit, 1.0, 1 / length).unsqueeze(-1)
    largest = features.abs().amax(-1, keepdim=True)  # no square is lost or too large
    scaled = unit_features(features / largest.where(largest > 0, 1.0))
    return torch.where(is_unit.unsqueeze(-1), features, scaled)
