"""Rates of groups from confusion counts, and how metrics combine them.

Counts are ``[..., groups, true, predicted]``; leading dimensions are resamples. Rates of empty
groups are NaN, and minima and gaps are taken over the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fair_tta.metrics._types import Floats


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Return the quotient, NaN where the denominator is 0."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    quotient = np.full(shape, np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


def overall_accuracy(counts: Floats) -> Floats:
    """Accuracy over all images: ``[...]``."""
    return ratio(_correct(counts).sum((-1, -2)), counts.sum((-1, -2, -3)))


def accuracy_by_group(counts: Floats) -> Floats:
    """Accuracy of each group: ``[..., groups]``."""
    return ratio(_correct(counts).sum(-1), counts.sum((-1, -2)))


def true_positive_rates(counts: Floats) -> Floats:
    """Accuracy of each group on each class: ``[..., groups, targets]``."""
    return ratio(_correct(counts), counts.sum(-1))


def accuracy_by_cell(counts: Floats) -> Floats:
    """Accuracy of each group on each class in one row: ``[..., groups * targets]``."""
    rates = true_positive_rates(counts)
    return rates.reshape(*rates.shape[:-2], -1)


def false_positive_rates(counts: Floats) -> Floats:
    """Share of images of other classes that get this answer: ``[..., groups, targets]``."""
    # Of all images of a group that are answered with a class, those of other classes.
    true = counts.sum(-1)
    answered = counts.sum(-2)
    false_positives = answered - _correct(counts)
    images_of_other_classes = true.sum(-1, keepdims=True) - true
    return ratio(false_positives, images_of_other_classes)


def true_and_false_positive_rates(counts: Floats) -> Floats:
    """True- and false-positive rates: ``[..., 2, groups, targets]``."""
    return np.stack([true_positive_rates(counts), false_positive_rates(counts)], -3)


def selection_rates(counts: Floats) -> Floats:
    """Share of images that get each answer: ``[..., groups, targets]``."""
    answered = counts.sum(-2)
    return ratio(answered, answered.sum(-1, keepdims=True))


def with_overall_accuracy(
    rates: Callable[[Floats], Floats],
) -> Callable[[Floats], Floats]:
    """Return a function to one row: the accuracy over all images, then these rates."""

    def overall_and_rates(counts: Floats) -> Floats:
        overall = overall_accuracy(counts)[..., None]
        row = rates(counts).reshape(*overall.shape[:-1], -1)
        return np.concatenate([overall, row], -1)

    return overall_and_rates


def lowest_rate(rates: Floats) -> Floats:
    """The smallest of the last axis that is not NaN."""
    return np.asarray(np.fmin.reduce(rates, -1))


def shortfall_of_lowest_rate(rates: Floats) -> Floats:
    """The first rate, which is over all images, minus the lowest of the others; at least 0."""
    return np.maximum(0.0, rates[..., 0] - lowest_rate(rates[..., 1:]))


def gap_between_groups(rates: Floats) -> Floats:
    """Largest minus smallest over groups, ``[..., groups, targets] -> [..., targets]``.

    NaN where fewer than two groups have a rate.
    """
    # Of two numbers `fmax` and `fmin` take the one that is not NaN.
    gap: Floats = np.fmax.reduce(rates, -2) - np.fmin.reduce(rates, -2)
    groups_with_rate = (~np.isnan(rates)).sum(-2)
    return np.where(groups_with_rate < 2, np.nan, gap)


def mean_gap(rates: Floats) -> Floats:
    """Mean over classes of the gap between groups."""
    return mean_of_defined(gap_between_groups(rates))


def mean_larger_gap(rates: Floats) -> Floats:
    """Mean over classes of the larger of two gaps; a class needs both, as NaN wins."""
    return mean_of_defined(gap_between_groups(rates).max(-2))


def mean_of_defined(values: Floats) -> Floats:
    """Mean over the last axis of the values that are not NaN; NaN if all are."""
    is_defined = ~np.isnan(values)
    total = np.where(is_defined, values, 0.0).sum(-1)
    return ratio(total, is_defined.sum(-1).astype(np.float64))


def _correct(counts: Floats) -> Floats:
    """Correct answers: ``[..., groups, targets]``."""
    return np.asarray(np.einsum("...ii->...i", counts))
