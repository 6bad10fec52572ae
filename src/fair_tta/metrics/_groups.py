"""Figures of each group and of each class, and the difference between two runs.

Groups and classes that are listed in `values` and `targets` and do not occur are reported with
n = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics import _rates
from fair_tta.metrics._answer_table import AnswerTable, read_answer_table
from fair_tta.metrics._clusters import check_clusters
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
from fair_tta.metrics._metric import (
    MetricDefinition,
    RateMetric,
    estimate_with_reason,
)
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import (
    Column,
    Floats,
    Ints,
    Mask,
    Sensitive,
    Targets,
    Values,
)
from fair_tta.metrics.intervals import _extremes as extremes
from fair_tta.metrics.intervals._accuracies import rate_change_bounds
from fair_tta.metrics.intervals._bootstrap import Interval, read_interval
from fair_tta.metrics.intervals._closed_forms import wilson


@dataclass(frozen=True)
class ClassRates:
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
    """Return the accuracy of each group with Wilson's interval, by name; empty groups are NaN.

    The name of a group is its value, the tuple of its values if there are several attributes, or
    ``(target, *values)`` with ``over="target and sensitive"``.
    """
    table = _read_table(y_true, [y_pred], sensitive, targets, values, clusters)
    group_by = parse_group_by("over", over)
    warn_small_groups(table.sizes_by_name(group_by))
    level = None if interval is None else read_interval(interval).level
    correct, total = table.correct_and_total(0, group_by)
    weights = table.effective_weights(0, group_by)
    accuracies = {}
    for index, cell in enumerate(table.cells(group_by)):
        accuracies[_group_key(cell)] = rate_estimate(
            correct[index], total[index], level, group_label(*cell), weights[index]
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
) -> dict[Hashable, ClassRates]:
    """Return, for each class, the gaps between groups of TPR, FPR and selection rate.

    0 means no disparity.

    Example:
        >>> truth, answers = ["cat", "dog"] * 60, ["cat", "dog"] * 30 + ["cat", "cat"] * 30
        >>> gaps = class_gaps(truth, answers, ["indoors"] * 60 + ["outdoors"] * 60)
        >>> gaps["dog"].true_positive_rate.value
        1.0
    """
    table = _read_table(y_true, [y_pred], sensitive, targets, values, clusters)
    warn_small_groups(table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    level = None if interval is None else read_interval(interval).level
    gaps = gaps_of_classes(table, 0, level)
    return dict(zip(table.targets, gaps, strict=True))


def group_rates(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> dict[Hashable, ClassRates]:
    """Return TPR, FPR and selection rate of each ``(target, *values)`` with Wilson's intervals."""
    table = _read_table(y_true, [y_pred], sensitive, targets, values, clusters)
    warn_small_groups(table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    level = None if interval is None else read_interval(interval).level
    rates: dict[Hashable, ClassRates] = {}
    for group, rates_of_group in zip(
        table.groups, rates_of_groups(table, 0, level), strict=True
    ):
        for target, rates_of_class in zip(table.targets, rates_of_group, strict=True):
            rates[(target, *group)] = rates_of_class
    return rates


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
    """Return the change of a metric from one run to another on the same images, ``after - before``.

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
    bootstrap = read_interval(interval)
    table = _read_table(y_true, [before, after], sensitive, targets, values, clusters)
    if scores is not None:
        checked = tuple(scores_of_run._checked(table.n) for scores_of_run in scores)
        table = replace(table, scores=checked)
    # Images are resampled one by one, which would ignore the clusters.
    is_resampled = isinstance(metric, RateMetric) and metric.intervals is None
    if clusters is not None and is_resampled:
        raise FairTTAError(
            "`clusters` should be None for a metric that images are resampled for "
            f"(got {metric.name!r}): define the metric with `intervals`.",
            argument="clusters",
        )
    warn_small_groups(table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    return metric.difference(table, 0, 1, bootstrap)


def _read_table(
    y_true: Column,
    runs: Sequence[Column],
    sensitive: Sensitive,
    targets: Targets,
    values: Values | None,
    clusters: Column | None,
) -> AnswerTable:
    """Return checked columns with enough clusters for intervals."""
    table = read_answer_table(y_true, runs, sensitive, targets, values, clusters)
    check_clusters(table.clusters)
    return table


def _group_key(cell: tuple[Hashable, ...]) -> Hashable:
    """Return the only name of a group, or the tuple of its names."""
    return cell[0] if len(cell) == 1 else cell


def rate_estimate(
    counted: int, n: int, level: float | None, name: str, weight: float = 1.0
) -> Estimate:
    """Return a share of n images with Wilson's interval.

    Args:
        counted: images that count, at most n.
        n: all images.
        level: of the interval; None for none.
        name: of the group, for the reason if there are no images.
        weight: of an image in the interval, see `AnswerTable.effective_weight`.
    """
    # Numbers of numpy become plain ones, as documents have them.
    counted = int(counted)
    n = int(n)
    if n == 0:
        return undefined_estimate(f"no images: {name}")
    if level is None:
        return Estimate(counted / n, n)
    low, high = wilson(counted * weight, n * weight, level)
    return Estimate(counted / n, n, low, high)


def share_estimate(
    table: AnswerTable,
    mask: Mask,
    level: float | None,
    name: str,
    is_counted: Mask,
    is_counted_after: Mask | None = None,
) -> Estimate:
    """Return the share of images that are counted, or its change to another run.

    Args:
        table: of which images.
        mask: ``[images]`` the group.
        level: of the interval; None for none.
        name: of the group, for the reason if there are no images.
        is_counted: ``[images]``
        is_counted_after: ``[images]`` the same in the other run; None for the share itself.
    """
    n = int(mask.sum())
    if is_counted_after is None:
        weight = table.effective_weight(mask, is_counted)
        return rate_estimate(int(is_counted[mask].sum()), n, level, name, weight)
    if n == 0:
        return undefined_estimate(f"no images: {name}")
    # Images that are counted in both runs, or in neither, cancel.
    losses = int((is_counted & ~is_counted_after)[mask].sum())
    gains = int((~is_counted & is_counted_after)[mask].sum())
    change = (gains - losses) / n
    if level is None:
        return Estimate(change, n)
    low, high = rate_change_bounds(table, mask, is_counted, is_counted_after, level)
    return Estimate(change, n, low, high)


def rates_of_groups(
    table: AnswerTable, run: int, level: float | None
) -> list[list[ClassRates]]:
    """Return rates ``[groups][targets]``, with Wilson's intervals."""
    rates = []
    for group_code, group in enumerate(table.groups):
        in_group = table.group_codes == group_code
        of_group = [
            _rates_of_class(table, run, level, in_group, group, class_code)
            for class_code in range(len(table.targets))
        ]
        rates.append(of_group)
    return rates


def _rates_of_class(
    table: AnswerTable,
    run: int,
    level: float | None,
    in_group: Mask,
    group: tuple[Hashable, ...],
    class_code: int,
) -> ClassRates:
    """Return the rates of one class in one group."""
    target = table.targets[class_code]
    # Each rate is the share of images of its own that get this answer.
    in_class = in_group & (table.truth == class_code)
    in_others = in_group & (table.truth != class_code)
    is_answered = table.answers[run] == class_code

    def share(mask: Mask, name: str) -> Estimate:
        return share_estimate(table, mask, level, name, is_answered)

    return ClassRates(
        true_positive_rate=share(in_class, group_label(target, *group)),
        false_positive_rate=share(in_others, group_label(f"not {target}", *group)),
        selection_rate=share(in_group, group_label(*group)),
    )


def gaps_of_classes(
    table: AnswerTable, run: int, level: float | None
) -> list[ClassRates]:
    """Return the gaps between groups for each class."""
    # Each rate has its own images: of the class, of the other classes, of all classes.
    counts = table.counts(run)
    of_class = counts.sum(2)  # images: [groups, classes]
    of_group = np.broadcast_to(of_class.sum(1, keepdims=True), of_class.shape)

    def gaps(
        rates: Callable[[Floats], Floats],
        differences: extremes.LinearForms,
        images: Ints,
        names: Sequence[tuple[Hashable, ...]],
    ) -> list[Estimate]:
        # All classes at once: one by one takes a time that grows with their square.
        values = _rates.gap_between_groups(rates(counts.astype(np.float64)))
        low = high = np.full(len(values), np.nan)
        if level is not None:
            low, high = extremes.class_extreme_bounds(differences, table, run, level)
        estimates = []
        for c, name in enumerate(names):
            sizes = {
                group_label(*name, *group): int(images[g, c])
                for g, group in enumerate(table.groups)
            }
            note = missing_groups_note(sizes)
            n = sum(sizes.values())
            estimates.append(
                estimate_with_reason(float(values[c]), n, low[c], high[c], note)
            )
        return estimates

    true_positive = gaps(
        _rates.true_positive_rates,
        extremes.true_positive_differences,
        of_class,
        [(target,) for target in table.targets],
    )
    false_positive = gaps(
        _rates.false_positive_rates,
        extremes.false_positive_differences,
        of_group - of_class,
        [(f"not {target}",) for target in table.targets],
    )
    selection = gaps(
        _rates.selection_rates,
        extremes.selection_differences,
        of_group,
        [() for _ in table.targets],
    )
    return list(map(ClassRates, true_positive, false_positive, selection))
