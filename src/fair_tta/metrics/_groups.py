"""Metrics of answers: accuracy, worst group, and gaps between groups.

Every function takes the true labels, the answers and the sensitive values of the same images, as
names or numbers in lists, arrays, tensors or pandas series. `sensitive` may be
``{attribute: column}``; with several attributes a group is an intersection. Pass `targets` and
`values` to list classes and sensitive values that may not occur: they are reported with n = 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._bootstrap import (
    DEFAULT,
    Bootstrap,
    Interval,
    read_interval,
)
from fair_tta.metrics._columns import (
    Column,
    Columns,
    Mask,
    Sensitive,
    Values,
    parse_columns,
)
from fair_tta.metrics._definitions import change_ends
from fair_tta.metrics._estimate import (
    Estimate,
    Over,
    check_over,
    label,
    left_out,
    undefined,
    warn_small,
)
from fair_tta.metrics._intervals import wilson
from fair_tta.metrics._metric import Figure, Metric, with_reason
from fair_tta.metrics._scores import Scores

Targets = Sequence[Hashable] | None


@dataclass(frozen=True)
class Rates:
    """Three rates of one class, in one group or as gaps between groups."""

    true_positive_rate: Estimate
    false_positive_rate: Estimate
    selection_rate: Estimate


def accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive | None = None,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = None,
) -> Estimate:
    """The share of right answers, ``sum_i M_ii / K``. Groups only make the strata of the interval.

    Example:
        >>> accuracy(["cat", "dog"], ["cat", "cat"])
        Estimate(value=0.5, n=2, low=None, high=None, reason=None)
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    return _measure(definitions.ACCURACY, columns, interval)


def group_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: Over = Over.SENSITIVE,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
) -> dict[Hashable, Estimate]:
    """Accuracy of each group with Wilson's interval, by name; empty groups are NaN.

    A group is called by its value, by the tuple of its values if there are several attributes, and
    by ``(target, *values)`` over `Over.TARGET_AND_SENSITIVE`.
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    right, n = columns.right_and_all(0, over)
    warn_small(columns.sizes(over), stacklevel=4)
    level = None if interval is None else read_interval(interval).level
    return {
        cell[0] if len(cell) == 1 else cell: rate(right[i], n[i], level, label(*cell))
        for i, cell in enumerate(columns.cells(over))
    }


def balanced_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
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
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    return _measure(definitions.BALANCED_ACCURACY, columns, interval, stacklevel=5)


def typical_gap(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
) -> Estimate:
    """By how much two groups of a class typically differ in accuracy.

    ``sqrt(max(0, V - b))`` with ``V = mean_y 2 var_s(r_ys)``, the mean squared difference in
    accuracy between two groups of a class, and b what chance alone adds to it: see
    `fair_tta.metrics._typical_gap`. The interval takes five images of each class in each group.

    Example:
        >>> names, groups = ["cat", "dog"] * 60, ["indoors"] * 60 + ["outdoors"] * 60
        >>> round(typical_gap(names, ["cat"] * 60 + names[60:], groups).value, 2)
        0.71
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    warn_small(columns.sizes(Over.TARGET_AND_SENSITIVE))
    return definitions.TYPICAL_GAP.estimate(columns, 0, _how(interval))


def worst_group_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: Over = Over.TARGET_AND_SENSITIVE,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
) -> Estimate:
    """The accuracy of the group that fares worst, with the n of that group.

    ``min_{y, s} M^(s)_yy / K^(s)_y`` over `Over.TARGET_AND_SENSITIVE`, as in the paper's tables, or
    ``min_s sum_i M^(s)_ii / K^(s)`` over `Over.SENSITIVE`, as in its text.

    The interval goes from the smallest lower to the smallest upper end of the exact intervals of
    all groups (Clopper and Pearson), at a level (Bonferroni) at which they hold together. So it
    knows that some other group, seen on few images, may be the worst.
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    metric = _over(over, definitions.WORST_GROUP_ACCURACY_S, definitions.WORST_GROUP_ACCURACY)
    return _measure(metric, columns, interval, stacklevel=5)


def bias(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: Over = Over.TARGET_AND_SENSITIVE,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
) -> Estimate:
    """Accuracy minus worst-group accuracy: 0 means that no group fares worse than the average.

    The interval subtracts both ends of that of `worst_group_accuracy`.
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    metric = _over(over, definitions.BIAS_S, definitions.BIAS)
    return _measure(metric, columns, interval, stacklevel=5)


def equalized_odds_difference(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = None,
) -> Estimate:
    """Mean over classes of the larger of two gaps between groups, TPR and FPR; 0: no disparity.

    ``mean_y max(Gap_s TPR_y, Gap_s FPR_y)`` with ``Gap_s = max_s - min_s``, for any number of
    classes. For two classes it is fairlearn's `equalized_odds_difference`.
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    return _measure(definitions.EQUALIZED_ODDS, columns, interval)


def equal_opportunity_difference(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    target: Hashable | None = None,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = None,
) -> Estimate:
    """The gap between groups of the true-positive rate of one class. 0 means no disparity.

    ``Gap_s TPR_target``, or the mean over classes if `target` is None.
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    if target is None:
        return _measure(definitions.EQUAL_OPPORTUNITY, columns, interval)
    warn_small(columns.sizes(Over.TARGET_AND_SENSITIVE))
    return _gaps_of(target, columns, interval).true_positive_rate


def demographic_parity_difference(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    target: Hashable | None = None,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = None,
) -> Estimate:
    """The gap between groups of how often an answer is given. 0 means no disparity.

    ``Gap_s P(answer = target | s)``, or the mean over classes if `target` is None. Labels do not
    matter, except for the strata of the interval.
    """
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    if target is None:
        return _measure(definitions.DEMOGRAPHIC_PARITY, columns, interval)
    warn_small(columns.sizes(Over.SENSITIVE))
    return _gaps_of(target, columns, interval).selection_rate


def class_gaps(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = None,
) -> dict[Hashable, Rates]:
    """For each class the gaps between groups of TPR, FPR and selection rate; 0: no disparity."""
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    warn_small(columns.sizes(Over.TARGET_AND_SENSITIVE))
    gaps = gaps_of_classes(columns, 0, _how(interval))
    return dict(zip(columns.targets, gaps, strict=True))


def group_rates(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
) -> dict[Hashable, Rates]:
    """For each ``(target, *values)`` TPR, FPR and selection rate with Wilson's intervals."""
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values)
    warn_small(columns.sizes(Over.TARGET_AND_SENSITIVE), stacklevel=4)
    level = None if interval is None else read_interval(interval).level
    table = rates_of_groups(columns, 0, level)
    cells = columns.cells(Over.TARGET_AND_SENSITIVE)
    return dict(zip(cells, (rates for row in table for rates in row), strict=True))


def paired_difference(
    metric: Figure,
    y_true: Column,
    before: Column,
    after: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    scores: tuple[Scores, Scores] | None = None,
    interval: Interval = DEFAULT,
) -> Estimate:
    """How a metric changes from one run to another on the same images, ``after - before``.

    The metric is one of `fair_tta.metrics.definitions` that gives one number, or a user-defined
    function of confusion counts, for which images are resampled, each with both its answers. What
    both runs get right or wrong together cancels, so the interval is narrower than those of the
    runs suggest.

    Args:
        metric: such as ``definitions.TYPICAL_GAP``.
        y_true: true labels.
        before: answers of the first run.
        after: answers of the second run.
        sensitive: sensitive values, or ``{attribute: values}``.
        targets: all classes, if some may not occur.
        values: all sensitive values, if some may not occur.
        scores: what both runs report besides answers, for metrics of confidence.
        interval: how intervals are made.
    """
    if not isinstance(metric, Figure):
        raise FairTTAError(
            "`metric` should be a definition, such as definitions.WORST_GROUP_ACCURACY "
            f"(got {metric!r})."
        )
    how = read_interval(interval)
    columns = parse_columns(y_true, [before, after], sensitive, targets, values)
    if scores is not None:
        checked = (of_run.checked(columns.n) for of_run in scores)
        columns = replace(columns, scores=tuple(checked))
    warn_small(columns.sizes(Over.TARGET_AND_SENSITIVE))
    return metric.difference(columns, 0, 1, how)


def rate(right: int, n: int, level: float | None, name: str, weight: float = 1.0) -> Estimate:
    """A share of n images with Wilson's interval; `weight` is what an image counts for in that."""
    right, n = int(right), int(n)
    if n == 0:
        return undefined(f"no images: {name}")
    ends = (None, None) if level is None else wilson(right * weight, n * weight, level)
    return Estimate(right / n, n, *ends)


def rates_of_groups(columns: Columns, run: int, level: float | None) -> list[list[Rates]]:
    """``[groups][targets]``, with Wilson's intervals."""
    counts = columns.counts(run)
    true, answered, right = counts.sum(2), counts.sum(1), np.einsum("gcc->gc", counts)
    n = true.sum(1)

    def rates(g: int, c: int) -> Rates:
        group, target = columns.groups[g], columns.targets[c]
        here, given, own = columns.group == g, columns.answers[run] == c, columns.truth == c
        hits, size, said = right[g, c], true[g, c], answered[g, c]
        parts = (
            (hits, size, label(target, *group), here & own),
            (said - hits, n[g] - size, label(f"not {target}", *group), here & ~own),
            (said, n[g], label(*group), here),
        )
        found = (rate(k, of, level, name, columns.weight(m, given)) for k, of, name, m in parts)
        return Rates(*found)

    return [[rates(g, c) for c in range(len(columns.targets))] for g in range(len(columns.groups))]


def gaps_of_classes(columns: Columns, run: int, how: Bootstrap | None) -> list[Rates]:
    """Gaps between groups for each class."""
    metrics, counts = definitions.CLASS_GAPS, columns.counts(run)
    true = counts.sum(2)
    n = true.sum(1, keepdims=True)
    bases = true, n - true, n + 0 * true
    values = [metric(counts) for metric in metrics]
    ends = [(value + np.nan, value + np.nan) for value in values]
    if how is not None:
        ends = [m.interval(columns, run, how.level) for m in metrics if m.interval is not None]

    def gap(i: int, c: int) -> Estimate:
        target = columns.targets[c]
        what = ((target,), (f"not {target}",), ())[i]
        groups = zip(columns.groups, bases[i][:, c].tolist(), strict=True)
        sizes = {label(*what, *group): size for group, size in groups}
        low, high = (end[c] for end in ends[i])
        return with_reason(float(values[i][c]), sum(sizes.values()), low, high, left_out(sizes))

    return [Rates(*(gap(i, c) for i in range(3))) for c in range(len(columns.targets))]


def share_of(
    columns: Columns, mask: Mask, level: float, name: str, was: Mask, now: Mask | None = None
) -> Estimate:
    """The share of some images that `was` counts; with `now` how it changes on the same images."""
    n = int(mask.sum())
    if now is None:
        return rate(int(was[mask].sum()), n, level, name, columns.weight(mask, was))
    if n == 0:
        return undefined(f"no images: {name}")
    gone, come = int((was & ~now)[mask].sum()), int((~was & now)[mask].sum())
    low, high = change_ends(columns, mask, was, now, level)
    return Estimate((come - gone) / n, n, low, high)


def _measure(
    metric: Metric, columns: Columns, interval: Interval | None, stacklevel: int = 4
) -> Estimate:
    if metric.over is not None:
        warn_small(columns.sizes(metric.over), stacklevel)
    return metric.estimate(columns, 0, _how(interval))


def _how(interval: Interval | None) -> Bootstrap | None:
    return None if interval is None else read_interval(interval)


def _over(over: Over, of_values: Metric, of_pairs: Metric) -> Metric:
    check_over("over", over)
    return of_values if over is Over.SENSITIVE else of_pairs


def _gaps_of(target: Hashable, columns: Columns, interval: Interval | None) -> Rates:
    if target not in columns.targets:
        raise FairTTAError(f"`target` should be one of {list(columns.targets)} (got {target!r}).")
    return gaps_of_classes(columns, 0, _how(interval))[columns.targets.index(target)]
