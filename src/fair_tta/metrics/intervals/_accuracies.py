"""Intervals of accuracy, of balanced accuracy and of the worst group, and of their changes."""

from __future__ import annotations

import numpy as np

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy
from fair_tta.metrics._types import Floats, Mask
from fair_tta.metrics.intervals import _extremes as extremes
from fair_tta.metrics.intervals._closed_forms import (
    Bounds,
    clopper_pearson_bounds,
    mean_change_bounds,
    mean_rate_bounds,
    paired_bounds,
    wilson,
)
from fair_tta.metrics.intervals._extremes import MaxMinInterval, extreme_bounds


def accuracy_bounds(columns: AnswerTable, run: int, level: float) -> Bounds:
    """The accuracy of a run (Wilson)."""
    right = columns.answers[run] == columns.truth
    weight = columns.effective_weight(np.ones(len(right), np.bool_), right)
    hits, n = (part.sum() for part in columns.correct_and_total(run, GroupBy.SENSITIVE))
    return wilson(hits * weight, n * weight, level)


def balanced_bounds(columns: AnswerTable, run: int, level: float) -> Bounds:
    """The mean accuracy of groups (Price and Bonett)."""
    if columns.clusters is not None:
        return extreme_bounds(extremes.balanced_accuracy_form, columns, run, level)
    low, high = mean_rate_bounds(
        *_of_present(columns, run, GroupBy.TARGET_AND_SENSITIVE), level
    )
    return max(0.0, low), min(1.0, high)


def accuracy_change_bounds(
    columns: AnswerTable, before: int, after: int, level: float
) -> Bounds:
    """The change of accuracy (Bonett and Price)."""
    was, now = (columns.answers[run] == columns.truth for run in (before, after))
    low, high = rate_change_bounds(
        columns, np.ones(len(was), np.bool_), was, now, level
    )
    if columns.clusters is None:
        return low, high
    # Draws take the images of each cell as given, totals of clusters do not: persons may be in
    # several cells.
    drawn = MaxMinInterval(extremes.accuracy_form)(columns, before, after, level)
    return min(low, drawn[0]), max(high, drawn[1])


def rate_change_bounds(
    columns: AnswerTable, some: Mask, was: Mask, now: Mask, level: float
) -> Bounds:
    """The change of the share of some images (Bonett and Price), as many as count with clusters."""
    change = now.astype(np.float64) - was
    weight = columns.effective_weight(some, change, level)
    counts = np.array(
        [(some & was & ~now).sum(), (some & ~was & now).sum(), some.sum()]
    )
    loss, gain, n = weight * counts
    low, high = paired_bounds(loss, gain, n, level)
    return max(-1.0, float(low)), min(1.0, float(high))


def balanced_change_bounds(
    columns: AnswerTable, before: int, after: int, level: float
) -> Bounds:
    """The change of the mean accuracy of groups."""
    if columns.clusters is not None:
        return MaxMinInterval(extremes.balanced_accuracy_form)(
            columns, before, after, level
        )
    loss, gain, n = _losses_and_gains(columns, before, after)
    some = n > 0
    low, high = mean_change_bounds(loss[some], gain[some], n[some], level)
    return max(-1.0, low), min(1.0, high)


def _losses_and_gains(
    columns: AnswerTable, before: int, after: int
) -> tuple[Floats, Floats, Floats]:
    """Images no longer right, newly right, and all, of each class in each group."""
    was, now = (columns.answers[run] == columns.truth for run in (before, after))
    return (
        columns.sum_by_cell(was & ~now),
        columns.sum_by_cell(~was & now),
        columns.sum_by_cell(),
    )


def worst_group_bounds(
    over: GroupBy, columns: AnswerTable, run: int, level: float
) -> Bounds:
    """The accuracy of the worst group, from exact intervals (Clopper and Pearson).

    Lower: of all groups the lowest end, each with the full error, as that of the truly worst group
    alone must not fail. Upper: nine tenths of the error are shared by the groups that may be the
    worst; the tenth says which may.
    """
    right, n = _of_present(columns, run, over)
    error = (1 - level) / 2
    each = clopper_pearson_bounds(right, n, 1 - 2 * 0.1 * error / (len(n) + 1))
    may_be_worst = each[0] <= each[1].min()
    low, _ = clopper_pearson_bounds(right, n, level)
    _, high = clopper_pearson_bounds(
        right[may_be_worst], n[may_be_worst], 1 - 2 * 0.9 * error / may_be_worst.sum()
    )
    return float(low.min()), float(high.min())


def _of_present(columns: AnswerTable, run: int, over: GroupBy) -> tuple[Floats, Floats]:
    """Right answers and images of the groups that have images, as many as count with clusters."""
    right, n = columns.correct_and_total(run, over)
    weight = columns.effective_weights(run, over)[n > 0]
    return right[n > 0] * weight, n[n > 0] * weight
