"""Metrics of rankings: who is at the top (Geyik, Ambler and Kenthapadi, KDD 2019)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._estimate import Estimate
from fair_tta.metrics._rows import Column, Floats, Ints, codes_of, distinct_names, read_column


def max_skew(
    ranked: Column,
    k: int,
    *,
    desired: Mapping[Any, float] | None = None,
    values: Sequence[Hashable] | None = None,
) -> Estimate:
    """MaxSkew@k: by how much the most favoured group is over-represented among the first k.

    ``max_s ln(share of s among the first k / desired share of s)``. 0 is no disparity, ln 2 means
    that some group is there twice as often as desired. Never negative.

    Args:
        ranked: the sensitive values in the order of the ranking, best first.
        k: how many count as the top.
        desired: ``{value: share}``; the shares in the whole ranking if None.
        values: all values.

    Example:
        >>> round(max_skew(["man", "man", "woman", "woman"], k=2).value, 3)
        0.693
    """
    codes, shares = _parse(ranked, desired, values)
    if not isinstance(k, int) or not 1 <= k <= len(codes):
        raise FairTTAError(
            f"`k` should lie from 1 to {len(codes)}, the ranking's length (got {k!r})."
        )
    top = np.bincount(codes[:k], minlength=len(shares)) / k
    present = top > 0
    value = float(np.log(top[present] / shares[present]).max())
    return Estimate(max(0.0, value), k)


def ndkl(
    ranked: Column,
    *,
    desired: Mapping[Any, float] | None = None,
    values: Sequence[Hashable] | None = None,
) -> Estimate:
    """NDKL: how far the tops of all lengths are from the desired shares; 0 is no disparity.

    ``1/Z sum_i KL(shares among the first i || desired) / log2(i + 1)`` with
    ``Z = sum_i 1 / log2(i + 1)``. It has no upper bound.

    Args:
        ranked: the sensitive values in the order of the ranking, best first.
        desired: ``{value: share}``; the shares in the whole ranking if None.
        values: all values.
    """
    codes, shares = _parse(ranked, desired, values)
    length = len(codes)
    weights = 1 / np.log2(np.arange(2, length + 2))
    divergence = np.zeros(length)
    for value, share in enumerate(shares.tolist()):
        if share > 0:
            top = np.cumsum(codes == value) / np.arange(1, length + 1)
            divergence += np.where(top > 0, top * np.log(np.where(top > 0, top, 1) / share), 0.0)
    return Estimate(max(0.0, float(weights @ divergence / weights.sum())), length)


def _parse(
    ranked: Column,
    desired: Mapping[Any, float] | None,
    values: Sequence[Hashable] | None,
) -> tuple[Ints, Floats]:
    column = read_column("ranked", ranked)
    if not column:
        raise FairTTAError("`ranked` should have at least one row (got none).")
    if desired is not None and not isinstance(desired, Mapping):
        raise FairTTAError(f"`desired` should be {{value: share}} (got {desired!r}).")
    if desired is not None and values is None:
        values = list(desired)
    names = distinct_names("values", values, column)
    codes = codes_of("`ranked`", "values", column, names)
    counts = np.bincount(codes, minlength=len(names))
    if desired is None:
        return codes, counts / len(codes)
    try:
        shares = np.array([float(desired.get(value, math.nan)) for value in names])
    except (TypeError, ValueError):
        shares = np.array([math.nan])
    if not (np.all(shares >= 0) and math.isclose(shares.sum(), 1, abs_tol=1e-6)):
        raise FairTTAError(f"`desired` should give each value a share, 1 in all (got {desired}).")
    if np.any((counts > 0) & (shares == 0)):
        raise FairTTAError("`desired` should give every value that occurs a share above 0.")
    return codes, shares
