"""Intervals of accuracy, of balanced accuracy and of the worst group, and of their changes.

With clusters, images count as the fraction of an image that a design effect leaves, see
docs/statistics.md, "Clusters".
"""

from __future__ import annotations

import numpy as np

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy
from fair_tta.metrics._types import Floats, Mask
from fair_tta.metrics.intervals._closed_forms import (
    Bounds,
    clopper_pearson_bounds,
    mean_change_bounds,
    mean_rate_bounds,
    paired_bounds,
    wilson,
)
from fair_tta.metrics.intervals._extremes import (
    SELECTION_SHARE,
    MaxMinInterval,
    accuracy_form,
    balanced_accuracy_form,
    extreme_bounds,
)


def accuracy_bounds(table: AnswerTable, run: int, level: float) -> Bounds:
    """Return the interval of the accuracy of a run (Wilson)."""
    is_right = table.answers[run] == table.truth
    all_images = np.ones(len(is_right), np.bool_)
    weight = table.effective_weight(all_images, is_right)
    right, n = table.correct_and_total(run, GroupBy.SENSITIVE)
    return wilson(right.sum() * weight, n.sum() * weight, level)


def balanced_bounds(table: AnswerTable, run: int, level: float) -> Bounds:
    """Return the interval of the mean accuracy of groups (Price and Bonett)."""
    if table.clusters is not None:
        return extreme_bounds(balanced_accuracy_form, table, run, level)
    right, n = _right_and_n(table, run, GroupBy.TARGET_AND_SENSITIVE)
    low, high = mean_rate_bounds(right, n, level)
    return max(0.0, low), min(1.0, high)


def accuracy_change_bounds(
    table: AnswerTable, before: int, after: int, level: float
) -> Bounds:
    """Return the interval of the change of accuracy (Bonett and Price)."""
    right_before = table.answers[before] == table.truth
    right_after = table.answers[after] == table.truth
    all_images = np.ones(len(right_before), np.bool_)
    low, high = rate_change_bounds(table, all_images, right_before, right_after, level)
    if table.clusters is None:
        return low, high
    # A person may be in several cells. Draws take the images of each cell as given, and totals of
    # persons do not: the wider of both holds.
    drawn = MaxMinInterval(accuracy_form)(table, before, after, level)
    return min(low, drawn[0]), max(high, drawn[1])


def rate_change_bounds(
    table: AnswerTable,
    images: Mask,
    right_before: Mask,
    right_after: Mask,
    level: float,
) -> Bounds:
    """Return the interval of the change of a share of some images (Bonett and Price)."""
    change = right_after.astype(np.float64) - right_before
    weight = table.effective_weight(images, change, level)
    loss = weight * (images & right_before & ~right_after).sum()
    gain = weight * (images & ~right_before & right_after).sum()
    low, high = paired_bounds(loss, gain, weight * images.sum(), level)
    return max(-1.0, float(low)), min(1.0, float(high))


def balanced_change_bounds(
    table: AnswerTable, before: int, after: int, level: float
) -> Bounds:
    """Return the interval of the change of the mean accuracy of groups."""
    if table.clusters is not None:
        return MaxMinInterval(balanced_accuracy_form)(table, before, after, level)
    right_before = table.answers[before] == table.truth
    right_after = table.answers[after] == table.truth
    n = table.sum_by_cell()
    has_images = n > 0
    loss = table.sum_by_cell(right_before & ~right_after)[has_images]
    gain = table.sum_by_cell(~right_before & right_after)[has_images]
    low, high = mean_change_bounds(loss, gain, n[has_images], level)
    return max(-1.0, low), min(1.0, high)


def worst_group_bounds(
    group_by: GroupBy, table: AnswerTable, run: int, level: float
) -> Bounds:
    """Return the interval of the accuracy of the worst group (Clopper and Pearson).

    Lower end: the lowest of all groups, each with the full error, as only that of the truly worst
    group must not fail. Upper end: the groups that may be the worst share nine tenths of the error;
    the other tenth decides which may.
    """
    right, n = _right_and_n(table, run, group_by)
    error = (1 - level) / 2
    # One lower end for each group, and the upper end of one.
    selection_error = SELECTION_SHARE * error / (len(n) + 1)
    lowest, highest = clopper_pearson_bounds(right, n, 1 - 2 * selection_error)
    may_be_worst = lowest <= highest.min()
    end_error = (1 - SELECTION_SHARE) * error / may_be_worst.sum()
    low, _ = clopper_pearson_bounds(right, n, level)
    _, high = clopper_pearson_bounds(
        right[may_be_worst], n[may_be_worst], 1 - 2 * end_error
    )
    return float(low.min()), float(high.min())


def _right_and_n(
    table: AnswerTable, run: int, group_by: GroupBy
) -> tuple[Floats, Floats]:
    """Return right answers and images of the groups with images, as many as effectively count."""
    right, n = table.correct_and_total(run, group_by)
    has_images = n > 0
    weight = table.effective_weights(run, group_by)[has_images]
    return right[has_images] * weight, n[has_images] * weight
