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

# How far the length of unit features may be from one.
_UNIT_LENGTH_TOLERANCE = 1e-5

# Between these lengths squares in single precision keep their digits.
_MIN_SAFE_LENGTH = 1e-9
_MAX_SAFE_LENGTH = 1e9

# Directions shorter than this, absolutely or relative to the longest, are rounding.
_MIN_DIRECTION = 1e-6

# Bounds of rounding that make one safe floor; `rounding_floor` has the reason.
_FLOOR_FACTOR = 4


def to_cpu_float64(x: Tensor) -> Tensor:
    """Return a copy on the CPU in float64."""
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
    """Return lengths over all but the first dimension, and x divided by them.

    Both are on the CPU in float64: zeros where the length is 0 and NaN where it is not finite.
    """
    x = to_cpu_float64(x)
    flat = x.flatten(1)
    # Divide by the largest entry first, so that no square overflows.
    largest = flat.abs().amax(-1, keepdim=True)
    scaled = flat / torch.where(largest == 0, 1.0, largest)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    direction = scaled / torch.where(length == 0, 1.0, length)
    return (largest * length).squeeze(-1), direction.view_as(x)


def rounding_floor(dim: int, dtype: torch.dtype) -> float:
    """Return the relative length below which the rest of a projection may be rounding alone.

    Dividing such a rest by its length would turn rounding into an answer. With eps the distance
    from 1 to the next number of a dtype:

    - each number of a feature is rounded by at most eps / 2 of its size, so the feature by at most
      eps / 2 of its length;
    - it comes from sums of `dim` products, which are off by at most dim eps / 2 (Higham, Accuracy
      and Stability of Numerical Algorithms, section 3.1), with the eps of float32, because products
      in half precision are summed in float32;
    - if x = sum_i c_i r_i is in the span of rows, the projection leaves the errors of x and of
      c_i r_i: 1 + sum_i |c_i| such halves. Four times the two whole eps are 8 halves, which allows
      for a sum of 7.

    On 1,703 text features of OpenAI's ViT-B/32 (facebookresearch/Detic), combinations of up to 20
    of them leave at most 0.53 eps in float32, float16 and bfloat16, other names of things at least
    0.28 beside "a Man" and "a Woman"; the floor is 0.0002, 0.004 and 0.03 there.

    Args:
        dim: numbers in a feature.
        dtype: in which the features were made; a later conversion to a wider one adds no digits.
    """
    storage_eps = torch.finfo(dtype).eps
    sum_eps = dim * min(storage_eps, torch.finfo(torch.float32).eps)
    return _FLOOR_FACTOR * (storage_eps + sum_eps)


def least_precise_dtype(*dtypes: torch.dtype) -> torch.dtype:
    """Return the dtype with the fewest digits."""
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def is_rounding(rest: Tensor, before: Tensor, floor: float) -> Tensor:
    """Return the rows of a rest that are rounding: ``[..., n, dim], [..., n, dim] -> [..., n]``."""
    # A difference instead of `<`, because the export to ONNX supports it. Only lengths move to
    # another device.
    missing_length = floor * before.norm(dim=-1).to(rest) - rest.norm(dim=-1)
    is_shorter: Tensor = missing_length > 0
    return is_shorter


def is_near_duplicate(rows: Tensor, floor: float) -> Tensor:
    """Return the unit rows nearer to another one than `floor`: ``[..., n, dim] -> [..., n]``."""
    squares = rows.square().sum(-1)
    distances = squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * rows @ rows.mT
    # No two unit rows are farther apart than 2, so 4 keeps a row from being its own nearest.
    itself = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
    nearest: Tensor = (distances + 4 * itself).amin(-1)
    return nearest < floor**2


def orthonormal_basis(rows: Tensor) -> Tensor:
    """Return orthonormal rows of the same span: ``[..., n, dim] -> [..., min(n, dim), dim]``.

    Where rows depend on one another, or are zero, there are rows of zeros.
    """
    rows = to_cpu_float64(rows)
    if rows.shape[-2] == 1:
        length = rows.norm(dim=-1, keepdim=True)
        return torch.where(length > _MIN_DIRECTION, rows / length, 0.0)
    _, sizes, basis = torch.linalg.svd(rows, full_matrices=False)
    threshold = (sizes[..., :1] * _MIN_DIRECTION).clamp(min=_MIN_DIRECTION)
    spanned: Tensor = basis * (sizes > threshold).unsqueeze(-1)
    return spanned


def project_onto(x: Tensor, rows: Tensor) -> Tensor:
    """Return the part of each row of x in the span of `rows`: ``[..., n, dim]``."""
    if not rows.shape[-2]:
        return torch.zeros(x.shape, dtype=torch.float64, device="cpu")
    basis = orthonormal_basis(rows)
    part: Tensor = to_cpu_float64(x) @ basis.mT @ basis
    return part


def project_out(x: Tensor, rows: Tensor) -> Tensor:
    """Return each row of x without its part in the span of `rows`: ``[..., n, dim]``."""
    return to_cpu_float64(x) - project_onto(x, rows)


def pair_differences(rows: Tensor) -> Tensor:
    """Return ``z_i - z_j`` of all pairs of rows: ``[..., n, dim] -> [..., n (n - 1) / 2, dim]``."""
    pairs = combinations(rows.unbind(-2), 2)
    return torch.stack([first - second for first, second in pairs], -2)


def subtract_mean(values: Tensor, dim: int) -> Tensor:
    """Return values minus their mean along a dimension."""
    return values - values.mean(dim, keepdim=True)


def unit_features(features: Tensor) -> Tensor:
    """Return features of length one in float32; float64 stays."""
    if features.dtype != torch.float64:
        features = features.float()
    return normalize(features, dim=-1)


def describe_shape(value: Any) -> Any:
    """Return the shape of a tensor, or else the type, for messages."""
    if isinstance(value, Tensor):
        return list(value.shape)
    return f"a {type(value).__name__}"


def ensure_unit_length(features: Tensor, length: Tensor | None = None) -> Tensor:
    """Return unit features; those of length one stay unchanged to the last digit.

    Args:
        features: of any length, ``[..., dim]``.
        length: their lengths, ``[...]``, if they are known.
    """
    if length is None:
        length = features.norm(dim=-1)
    is_unit = (length - 1).abs() < _UNIT_LENGTH_TOLERANCE
    if bool(is_unit.all()):
        return features
    is_safe = (length > _MIN_SAFE_LENGTH) & (length < _MAX_SAFE_LENGTH)
    if bool(is_safe.all()):
        return features * torch.where(is_unit, 1.0, 1 / length).unsqueeze(-1)
    # Divide by the largest entry first, so that no square is lost or too large.
    largest = features.abs().amax(-1, keepdim=True)
    scaled = unit_features(features / largest.where(largest > 0, 1.0))
    return torch.where(is_unit.unsqueeze(-1), features, scaled)
