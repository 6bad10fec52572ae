"""Figures of each group and of each class, and the difference between two runs.

Groups and classes that are listed in `values` and `targets` and do not occur are reported with
n = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics import _rates as rates_of
from fair_tta.metrics._answer_table import (
    AnswerTable,
    check_clusters,
    read_answer_table,
)
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    GroupByText,
    group_label,
    missing_groups_note,
    parse_group_by,
    undefined_estimate,
    warn_small_groups,
)
from fair_tta.metrics._metric import MetricDefinition, RateMetric, with_reason
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Column, Floats, Mask, Sensitive, Targets, Values
from fair_tta.metrics.intervals import _extremes as extremes
from fair_tta.metrics.intervals._accuracies import rate_change_bounds
from fair_tta.metrics.intervals._bootstrap import Bootstrap, Interval, read_interval
from fair_tta.metrics.intervals._closed_forms import wilson
from fair_tta.metrics.intervals._extremes import class_extreme_bounds


@dataclass(frozen=True)
class Rates:
    """Three rates of one class, in one group or as gaps between groups."""

    true_positive_rate: Estimate
    false_positive_rate: Estimate
    selection_rate: Estimate


def group_accuracy(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: GroupByText = "sensitive",
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> dict[Hashable, Estimate]:
    """Accuracy of each group with Wilson's interval, by name; empty groups are NaN.

    A group is called by its value, by the tuple of its values if there are several attributes, and
    by ``(target, *values)`` with ``over="target and sensitive"``.
    """
    columns = _read(y_true, [y_pred], sensitive, targets, values, clusters)
    groups = parse_group_by("over", over)
    right, n = columns.correct_and_total(0, groups)
    warn_small_groups(columns.sizes_by_name(groups))
    level = None if interval is None else read_interval(interval).level
    weights = columns.effective_weights(0, groups)
    accuracies = {}
    for i, cell in enumerate(columns.cells(groups)):
        name = cell[0] if len(cell) == 1 else cell
        accuracies[name] = rate_estimate(
            right[i], n[i], level, group_label(*cell), weights[i]
        )
    return accuracies


def class_gaps(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> dict[Hashable, Rates]:
    """For each class the gaps between groups of TPR, FPR and selection rate; 0: no disparity.

    Example:
        >>> truth, answers = ["cat", "dog"] * 60, ["cat", "dog"] * 30 + ["cat", "cat"] * 30
        >>> gaps = class_gaps(truth, answers, ["indoors"] * 60 + ["outdoors"] * 60)
        >>> gaps["dog"].true_positive_rate.value
        1.0
    """
    columns = _read(y_true, [y_pred], sensitive, targets, values, clusters)
    warn_small_groups(columns.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    how = None if interval is None else read_interval(interval)
    gaps = gaps_of_classes(columns, 0, how)
    return dict(zip(columns.targets, gaps, strict=True))


def group_rates(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> dict[Hashable, Rates]:
    """For each ``(target, *values)`` TPR, FPR and selection rate with Wilson's intervals."""
    columns = _read(y_true, [y_pred], sensitive, targets, values, clusters)
    warn_small_groups(columns.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    level = None if interval is None else read_interval(interval).level
    table = rates_of_groups(columns, 0, level)
    cells = columns.cells(GroupBy.TARGET_AND_SENSITIVE)
    return dict(zip(cells, (rates for row in table for rates in row), strict=True))


def paired_difference(
    metric: MetricDefinition,
    y_true: Column,
    before: Column,
    after: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    scores: tuple[Scores, Scores] | None = None,
    interval: Interval = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    """How a metric changes from one run to another on the same images, ``after - before``.

    The metric is one of `fair_tta.metrics.definitions`. What both runs get right or wrong together
    cancels, so the interval is narrower than those of the runs suggest.

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
        clusters: the person or source of each image, if several images come from one.
    """
    if not isinstance(metric, MetricDefinition):
        raise FairTTAError(
            "`metric` should be a definition, such as definitions.WORST_GROUP_ACCURACY "
            f"(got {metric!r}).",
            argument="metric",
        )
    how = read_interval(interval)
    columns = _read(y_true, [before, after], sensitive, targets, values, clusters)
    if scores is not None:
        checked = (of_run._checked(columns.n) for of_run in scores)
        columns = replace(columns, scores=tuple(checked))
    if (
        clusters is not None
        and isinstance(metric, RateMetric)
        and metric.change is None
    ):
        raise FairTTAError(
            "`clusters` should be None for a metric that images are resampled for "
            f"(got {metric.name!r}): give the metric a `change` of its own.",
            argument="clusters",
        )
    warn_small_groups(columns.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    return metric.difference(columns, 0, 1, how)


def rate_estimate(
    right: int, n: int, level: float | None, name: str, weight: float = 1.0
) -> Estimate:
    """A share of n images with Wilson's interval; `weight` is what an image counts for in that."""
    right, n = int(right), int(n)
    if n == 0:
        return undefined_estimate(f"no images: {name}")
    ends = (None, None) if level is None else wilson(right * weight, n * weight, level)
    return Estimate(right / n, n, *ends)


def rates_of_groups(
    columns: AnswerTable, run: int, level: float | None
) -> list[list[Rates]]:
    """``[groups][targets]``, with Wilson's intervals."""
    counts = columns.counts(run)
    true, answered, right = counts.sum(2), counts.sum(1), np.einsum("gcc->gc", counts)
    n = true.sum(1)

    def rates(g: int, c: int) -> Rates:
        group, target = columns.groups[g], columns.targets[c]
        here, given, own = (
            columns.group_codes == g,
            columns.answers[run] == c,
            columns.truth == c,
        )
        hits, size, said = right[g, c], true[g, c], answered[g, c]
        parts = (
            (hits, size, group_label(target, *group), here & own),
            (
                said - hits,
                n[g] - size,
                group_label(f"not {target}", *group),
                here & ~own,
            ),
            (said, n[g], group_label(*group), here),
        )
        found = (
            rate_estimate(k, of, level, name, columns.effective_weight(m, given))
            for k, of, name, m in parts
        )
        return Rates(*found)

    return [
        [rates(g, c) for c in range(len(columns.targets))]
        for g in range(len(columns.groups))
    ]


def _class_gaps(
    name: str, rates: Callable[[Floats], Floats], forms: extremes.LinearForms
) -> RateMetric:
    return RateMetric(
        name,
        rates,
        rates_of.gap,
        is_gap=True,
        interval=partial(class_extreme_bounds, forms),
    )


TRUE_POSITIVE_GAPS = _class_gaps(
    "true_positive_rate_gaps",
    rates_of.true_positive,
    extremes.true_positive_differences,
)
FALSE_POSITIVE_GAPS = _class_gaps(
    "false_positive_rate_gaps",
    rates_of.false_positive,
    extremes.false_positive_differences,
)
SELECTION_GAPS = _class_gaps(
    "selection_rate_gaps", rates_of.selection, extremes.selection_differences
)
_CLASS_GAPS = (TRUE_POSITIVE_GAPS, FALSE_POSITIVE_GAPS, SELECTION_GAPS)


def gaps_of_classes(
    columns: AnswerTable, run: int, how: Bootstrap | None
) -> list[Rates]:
    """Gaps between groups for each class."""
    metrics, counts = _CLASS_GAPS, columns.counts(run)
    true = counts.sum(2)
    n = true.sum(1, keepdims=True)
    bases = true, n - true, n + 0 * true
    values = [metric(counts) for metric in metrics]
    ends = [(value + np.nan, value + np.nan) for value in values]
    if how is not None:
        ends = [
            m.interval(columns, run, how.level)
            for m in metrics
            if m.interval is not None
        ]

    def gap(i: int, c: int) -> Estimate:
        target = columns.targets[c]
        what = ((target,), (f"not {target}",), ())[i]
        groups = zip(columns.groups, bases[i][:, c].tolist(), strict=True)
        sizes = {group_label(*what, *group): size for group, size in groups}
        low, high = (end[c] for end in ends[i])
        return with_reason(
            float(values[i][c]),
            sum(sizes.values()),
            low,
            high,
            missing_groups_note(sizes),
        )

    return [Rates(*(gap(i, c) for i in range(3))) for c in range(len(columns.targets))]


def share_estimate(
    columns: AnswerTable,
    mask: Mask,
    level: float | None,
    name: str,
    was: Mask,
    now: Mask | None = None,
) -> Estimate:
    """The share of some images that `was` counts; with `now` how it changes on the same images."""
    n = int(mask.sum())
    if now is None:
        return rate_estimate(
            int(was[mask].sum()), n, level, name, columns.effective_weight(mask, was)
        )
    if n == 0:
        return undefined_estimate(f"no images: {name}")
    gone, come = int((was & ~now)[mask].sum()), int((~was & now)[mask].sum())
    change = Estimate((come - gone) / n, n)
    if level is None:
        return change
    low, high = rate_change_bounds(columns, mask, was, now, level)
    return Estimate(change.value, n, low, high)


def _read(
    y_true: Column,
    runs: Sequence[Column],
    sensitive: Sensitive,
    targets: Targets,
    values: Values | None,
    clusters: Column | None,
) -> AnswerTable:
    """Checked columns with clusters enough for intervals."""
    columns = read_answer_table(y_true, runs, sensitive, targets, values, clusters)
    check_clusters(columns.clusters)
    return columns
