"""Metrics of answers: accuracy, worst group, and gaps between groups.

Every function takes the true labels, the answers and the sensitive values of the same images, as
names or numbers in lists, arrays, tensors or pandas series. `sensitive` may be
``{attribute: column}``; with several attributes a group is an intersection. Pass `targets` and
`values` to list classes and sensitive values that may not occur: they are reported with n = 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fair_tta.errors import FairTTAError
from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._bootstrap import DEFAULT, Bootstrap, check_interval
from fair_tta.metrics._definitions import Metric
from fair_tta.metrics._estimate import Estimate, Over, label, warn_small
from fair_tta.metrics._estimates import (
    Rates,
    balanced,
    cells,
    differences,
    estimate,
    gaps_of_classes,
    of_class,
    rate,
    rates_of_groups,
    right_and_all,
    shortfall,
    sizes,
    worst,
)
from fair_tta.metrics._rows import Column, Rows, Sensitive, Values, parse_rows

Targets = Sequence[Hashable] | None


def accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive | None = None,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Bootstrap | None = None,
) -> Estimate:
    """The share of right answers, ``sum_i M_ii / K``. Groups only make the strata of the interval.

    Example:
        >>> accuracy(["cat", "dog"], ["cat", "cat"])
        Estimate(value=0.5, n=2, low=None, high=None, reason=None)
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    return estimate(definitions.ACCURACY, rows, interval=interval)


def group_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: Over = Over.SENSITIVE,
    targets: Targets = None,
    values: Values | None = None,
    level: float = 0.95,
) -> dict[Hashable, Estimate]:
    """Accuracy of each group with Wilson's interval, by name; empty groups are NaN.

    A group is called by its value, by the tuple of its values if there are several attributes, and
    by ``(target, *values)`` over `Over.TARGET_AND_SENSITIVE`.
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    right, n = right_and_all(rows, 0, over)
    names = _names(rows, over)
    warn_small(sizes(rows, over))
    return {
        names[i]: rate(int(right[i]), int(n[i]), level, label(*cell))
        for i, cell in enumerate(cells(rows, over))
    }


def balanced_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    level: float = 0.95,
) -> Estimate:
    """The mean of the accuracies of all groups of class and sensitive value that have images.

    ``mean_{y, s} M^(s)_yy / K^(s)_y``: a rare group counts as much as a frequent one. It is at
    least `worst_group_accuracy`, and equal to it if all groups fare alike. (What is called balanced
    accuracy elsewhere, as in scikit-learn, is the mean over classes alone.)

    The interval is that of Price and Bonett (2004): see `fair_tta.metrics._intervals`.

    Example:
        >>> names = ["cat", "cat", "cat", "dog"] * 30
        >>> balanced_accuracy(names, ["cat"] * 120, ["indoors"] * 120).value
        0.5
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, Over.TARGET_AND_SENSITIVE))
    return balanced(rows, 0, level)


def worst_group_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: Over = Over.TARGET_AND_SENSITIVE,
    targets: Targets = None,
    values: Values | None = None,
    level: float = 0.95,
) -> Estimate:
    """The accuracy of the group that fares worst, with the n of that group.

    ``min_{y, s} M^(s)_yy / K^(s)_y`` over `Over.TARGET_AND_SENSITIVE`, as in the paper's tables, or
    ``min_s sum_i M^(s)_ii / K^(s)`` over `Over.SENSITIVE`, as in its text.

    The interval goes from the smallest lower to the smallest upper end of the exact intervals of
    all groups (Clopper and Pearson), at a level (Bonferroni) at which they hold together. So it
    knows that some other group, seen on few images, may be the worst.
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, over))
    return worst(rows, 0, over, level)


def bias(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: Over = Over.TARGET_AND_SENSITIVE,
    targets: Targets = None,
    values: Values | None = None,
    level: float = 0.95,
) -> Estimate:
    """Accuracy minus worst-group accuracy: 0 means that no group fares worse than the average.

    The interval subtracts both ends of that of `worst_group_accuracy`.
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, over))
    return shortfall(rows, 0, over, level)


def equalized_odds_difference(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Bootstrap | None = None,
) -> Estimate:
    """Mean over classes of the larger of two gaps between groups, TPR and FPR. 0 is no disparity.

    ``mean_y max(Gap_s TPR_y, Gap_s FPR_y)`` with ``Gap_s = max_s - min_s``, for any number of
    classes. For two classes it is fairlearn's `equalized_odds_difference`.
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, Over.TARGET_AND_SENSITIVE))
    return estimate(definitions.EQUALIZED_ODDS, rows, interval=interval)


def equal_opportunity_difference(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    target: Hashable | None = None,
    targets: Targets = None,
    values: Values | None = None,
    interval: Bootstrap | None = None,
) -> Estimate:
    """The gap between groups of the true-positive rate of one class. 0 is no disparity.

    ``Gap_s TPR_target``, or the mean over classes if `target` is None.
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, Over.TARGET_AND_SENSITIVE))
    return of_class(definitions.EQUAL_OPPORTUNITY, rows, target, interval)


def demographic_parity_difference(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    target: Hashable | None = None,
    targets: Targets = None,
    values: Values | None = None,
    interval: Bootstrap | None = None,
) -> Estimate:
    """The gap between groups of how often an answer is given. 0 is no disparity.

    ``Gap_s P(answer = target | s)``, or the mean over classes if `target` is None. Labels do not
    matter, except for the strata of the interval.
    """
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, Over.SENSITIVE))
    return of_class(definitions.DEMOGRAPHIC_PARITY, rows, target, interval)


def class_gaps(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Bootstrap | None = None,
) -> dict[Hashable, Rates]:
    """For each class the gaps between groups of TPR, FPR and selection rate. 0 is no disparity."""
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, Over.TARGET_AND_SENSITIVE))
    return dict(zip(rows.targets, gaps_of_classes(rows, 0, interval), strict=True))


def group_rates(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    level: float = 0.95,
) -> dict[Hashable, Rates]:
    """For each ``(target, *values)`` TPR, FPR and selection rate with Wilson's intervals."""
    rows = parse_rows(y_true, [y_pred], sensitive, targets, values)
    warn_small(sizes(rows, Over.TARGET_AND_SENSITIVE))
    table = rates_of_groups(rows, 0, level)
    return {
        (target, *group): table[g][c]
        for g, group in enumerate(rows.groups)
        for c, target in enumerate(rows.targets)
    }


def paired_difference(
    metric: Metric,
    y_true: Column,
    before: Column,
    after: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Bootstrap = DEFAULT,
) -> Estimate:
    """How a metric changes from one run to another on the same images, ``after - before``.

    Args:
        metric: one of `fair_tta.metrics._definitions` that gives one number, or your own
            function of confusion counts.
        y_true: true labels.
        before: answers of the run to compare with.
        after: answers of the other run.
        sensitive: sensitive values.
        targets: all classes.
        values: all sensitive values.
        interval: its level; for a metric of your own also how images are resampled, each with both
            its answers. What both runs get right or wrong together cancels, so the interval is
            narrower than those of the runs suggest.
    """
    if not isinstance(metric, Metric):
        raise FairTTAError(
            "`metric` should be a Metric, such as definitions.WORST_GROUP_ACCURACY "
            f"(got {metric!r})."
        )
    check_interval(interval)
    rows = parse_rows(y_true, [before, after], sensitive, targets, values)
    warn_small(sizes(rows, Over.TARGET_AND_SENSITIVE))
    return differences([metric], rows, 0, 1, interval)[0]


def _names(rows: Rows, over: Over) -> list[Hashable]:
    """Keys of results: a lone value is not wrapped."""
    return [cell[0] if len(cell) == 1 else cell for cell in cells(rows, over)]
