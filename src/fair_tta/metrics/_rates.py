"""Rates of groups from confusion counts, and how metrics combine them.

Counts are ``[..., groups, true, predicted]``; leading dimensions are resamples. Rates of empty
groups are NaN, and minima and gaps are taken over the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fair_tta.metrics._types import Floats


def ratio(top: Floats, bottom: Floats) -> Floats:
    """Top over bottom, NaN where there is nothing."""
    nothing = np.full(np.broadcast_shapes(top.shape, bottom.shape), np.nan)
    np.divide(top, bottom, out=nothing, where=bottom > 0)
    return nothing


def overall(counts: Floats) -> Floats:
    """Accuracy over everybody: ``[...]``."""
    return ratio(_diagonal(counts).sum((-1, -2)), counts.sum((-1, -2, -3)))


def by_group(counts: Floats) -> Floats:
    """Accuracy of each group: ``[..., groups]``."""
    return ratio(_diagonal(counts).sum(-1), counts.sum((-1, -2)))


def true_positive(counts: Floats) -> Floats:
    """Accuracy of each group on each class: ``[..., groups, targets]``."""
    return ratio(_diagonal(counts), counts.sum(-1))


def of_pairs(counts: Floats) -> Floats:
    """Accuracy of each group on each class in one row: ``[..., groups * targets]``."""
    rates = true_positive(counts)
    return rates.reshape(*rates.shape[:-2], -1)


def false_positive(counts: Floats) -> Floats:
    """How often images of other classes get this answer: ``[..., groups, targets]``."""
    true, answered = counts.sum(-1), counts.sum(-2)
    return ratio(answered - _diagonal(counts), true.sum(-1, keepdims=True) - true)


def odds(counts: Floats) -> Floats:
    """True- and false-positive rates: ``[..., 2, groups, targets]``."""
    return np.stack([true_positive(counts), false_positive(counts)], -3)


def selection(counts: Floats) -> Floats:
    """How often each answer is given: ``[..., groups, targets]``."""
    answered = counts.sum(-2)
    return ratio(answered, answered.sum(-1, keepdims=True))


def overall_and(rates: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """The accuracy over everybody, then these rates, in one row."""

    def both(counts: Floats) -> Floats:
        first = overall(counts)[..., None]
        return np.concatenate([first, rates(counts).reshape(*first.shape[:-1], -1)], -1)

    return both


def lowest(rates: Floats) -> Floats:
    """The smallest of the last axis."""
    return np.asarray(np.fmin.reduce(rates, -1))


def shortfall(rates: Floats) -> Floats:
    """By how much the lowest rate is below the first, which is that of everybody."""
    return np.maximum(0.0, rates[..., 0] - lowest(rates[..., 1:]))


def gap(rates: Floats) -> Floats:
    """Largest minus smallest over groups, ``[..., groups, targets] -> [..., targets]``.

    NaN where fewer than two groups have a rate.
    """
    spread: Floats = np.fmax.reduce(rates, -2) - np.fmin.reduce(rates, -2)
    return np.where((~np.isnan(rates)).sum(-2) < 2, np.nan, spread)


def mean_gap(rates: Floats) -> Floats:
    """The mean over classes of `gap`."""
    return mean_of_defined(gap(rates))


def mean_larger_gap(rates: Floats) -> Floats:
    """The mean over classes of the larger of two gaps; a class needs both, as NaN wins."""
    return mean_of_defined(gap(rates).max(-2))


def mean_of_defined(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN, NaN if nothing is."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(-1), known.sum(-1).astype(np.float64))


def _diagonal(counts: Floats) -> Floats:
    return np.asarray(np.einsum("...ii->...i", counts))
