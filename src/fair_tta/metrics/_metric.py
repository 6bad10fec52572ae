"""Definitions of metrics: how a metric is measured, compared and described."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import structs

from fair_tta.errors import FairTTAError
from fair_tta.metrics._answer_table import NO_CLASS, AnswerTable
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    direction,
    list_names,
    missing_groups_note,
    undefined_estimate,
)
from fair_tta.metrics._types import Floats
from fair_tta.metrics.intervals._bootstrap import (
    Bootstrap,
    resampled_bounds,
    resampled_change_bounds,
)
from fair_tta.metrics.intervals._closed_forms import Bounds, step_down
from fair_tta.metrics.intervals._extremes import (
    LinearForms,
    MaxMinInterval,
    extreme_bounds,
)

RunBounds: TypeAlias = Callable[[AnswerTable, int, float], Bounds]
"""Table, run and level to the bounds of an interval; NaN where there is none."""

ChangeBounds: TypeAlias = Callable[[AnswerTable, int, int, float], Bounds]
"""Table, run before, run after and level to the bounds of the change."""

JointChangeBounds: TypeAlias = Callable[[AnswerTable, float], list[Bounds]]
"""Table and level to the bounds of each run's change from the first, which hold together."""

TWO_GROUPS = "two groups with images"


@dataclass(frozen=True)
class MetricDefinition(ABC):
    """A metric of a run and its description.

    Attributes:
        name: its key in results and in `audit.json`.
        title: its name in reports.
        better: 1 if larger is better, -1 if smaller is, 0 if neither.
        meaning: one or two sentences for readers of reports.
        is_compared: comparisons of audits have its difference.
        formula: the same in symbols, see `fair_tta.metrics.definitions`.
        no_disparity: the value if groups fare alike; empty if there is none.
        notes: further sentences of its documentation.
        example: lines of Python for its documentation.
        over: the groups that it is taken over, None if groups do not matter.
    """

    name: str
    title: str = field(default="", kw_only=True)
    better: int = field(default=0, kw_only=True)
    meaning: str = field(default="", kw_only=True)
    is_compared: bool = field(default=True, kw_only=True)
    formula: str = field(default="", kw_only=True)
    no_disparity: str = field(default="", kw_only=True)
    notes: str = field(default="", kw_only=True)
    example: str = field(default="", kw_only=True)
    over: GroupBy | None = field(default=GroupBy.TARGET_AND_SENSITIVE, kw_only=True)

    @abstractmethod
    def estimate(
        self, table: AnswerTable, run: int, bootstrap: Bootstrap | None
    ) -> Estimate:
        """Return the metric of a run; without an interval if `bootstrap` is None."""

    @abstractmethod
    def difference(
        self, table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
    ) -> Estimate:
        """Return the metric of run `after` minus that of run `before`."""

    def differences(self, table: AnswerTable, bootstrap: Bootstrap) -> list[Estimate]:
        """Return each run's difference from the first, with intervals that hold together.

        Holm's procedure: differences that are shown leave, the rest shares the error.
        """

        def difference_at(index: int, error: float) -> Estimate:
            at_level = replace(bootstrap, level=1 - error)
            return self.difference(table, 0, index + 1, at_level)

        return step_down(
            len(table.answers) - 1,
            lambda remaining: (1 - bootstrap.level) / len(remaining),
            difference_at,
            lambda estimate: direction(estimate.low, estimate.high),
        )


@dataclass(frozen=True)
class Intervals:
    """Functions that compute the intervals of a metric from a table of answers.

    Attributes:
        run: the interval of one run.
        change: the interval of a change from one run to another.
        joint_changes: intervals of all changes from the first run that hold together; if None, the
            levels of `change` are adjusted by Holm's procedure.
    """

    run: RunBounds
    change: ChangeBounds
    joint_changes: JointChangeBounds | None = None


def max_min_intervals(
    forms: LinearForms, sign: int = 1, *, run: RunBounds | None = None
) -> Intervals:
    """Return the intervals of the largest of some linear forms of rates.

    Args:
        forms: the forms, see `fair_tta.metrics.intervals._extremes`.
        sign: -1 if the metric is minus the largest form.
        run: another interval of one run.
    """
    change = MaxMinInterval(forms, sign)
    return Intervals(run or partial(extreme_bounds, forms), change, change.joint_bounds)


@dataclass(frozen=True)
class RateMetric(MetricDefinition):
    """A metric that is a function of confusion counts. Define your own to compare runs by it.

    Attributes:
        rates: counts to rates, ``[..., groups, true, predicted] -> [..., *any shape]``.
        combine: rates to the metric, ``[..., *any shape] -> [...]``, or ``[..., targets]``.
        intervals: how its intervals are computed. If None, images are resampled, which is good for
            smooth functions of rates and too narrow for minima and gaps.
        is_gap: `combine` is a seminorm: 0 if all groups are equal, and the gap of a sum is at most
            the sum of the gaps. Then intervals of resampled images can reach 0.
        is_of_worst_group: it rests on the images of the worst of the groups `over`, not on all.
        needs: what a gap needs in order to be defined.
        needs_classes: it is a mean over all answers that are given, so it is not defined if some
            are no class.
    """

    rates: Callable[[Floats], Floats]
    combine: Callable[[Floats], Floats]
    intervals: Intervals | None = None
    is_gap: bool = False
    is_of_worst_group: bool = field(default=False, kw_only=True)
    needs: str = field(default=TWO_GROUPS, kw_only=True)
    needs_classes: bool = field(default=False, kw_only=True)

    def __call__(self, counts: Any) -> Floats:
        """``[..., groups, true, predicted] -> [...]``."""
        return self.combine(self.rates(np.asarray(counts, np.float64)))

    def estimate(
        self, table: AnswerTable, run: int, bootstrap: Bootstrap | None
    ) -> Estimate:
        value = float(self(table.counts(run)))
        n = table.n
        if self.is_of_worst_group and self.over is not None:
            _, images = table.correct_and_total(run, self.over)
            n = int(images[table.worst_cell(run, self.over)])

        # Closed forms or draws if the metric has them, resampled images otherwise.
        low: Any = None
        high: Any = None
        if bootstrap is not None and self.intervals is not None:
            bounds_of_run = self.intervals.run
            level = bootstrap.level
            low, high = at_least_unclustered(
                table, lambda images: bounds_of_run(images, run, level)
            )
        elif bootstrap is not None:
            low, high = resampled_bounds(self, table.counts(run), bootstrap)
        return self._with_reason(table, value, n, low, high)

    def difference(
        self, table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
    ) -> Estimate:
        # A metric of each class has no single difference.
        numbers = np.size(self(table.counts(before)))
        if numbers != 1:
            raise FairTTAError(
                f"`metric` should return one number (got {self.name!r}, which returns {numbers}).",
                argument="metric",
            )
        if self.intervals is None:
            bounds = resampled_change_bounds(self, table, before, after, bootstrap)
        else:
            bounds_of_change = self.intervals.change
            level = bootstrap.level
            bounds = at_least_unclustered(
                table, lambda images: bounds_of_change(images, before, after, level)
            )
        return self._change(table, before, after, bounds)

    def differences(self, table: AnswerTable, bootstrap: Bootstrap) -> list[Estimate]:
        if self.intervals is None or self.intervals.joint_changes is None:
            return super().differences(table, bootstrap)
        # Joint intervals come all at once, so they are made at least unclustered one by one.
        joint_changes = self.intervals.joint_changes
        all_bounds = joint_changes(table, bootstrap.level)
        if table.clusters is not None:
            unclustered = joint_changes(table.without_clusters, bootstrap.level)
            all_bounds = list(map(_spanning_bounds, all_bounds, unclustered))
        return [
            self._change(table, 0, after, bounds)
            for after, bounds in enumerate(all_bounds, start=1)
        ]

    def _change(
        self, table: AnswerTable, before: int, after: int, bounds: Bounds
    ) -> Estimate:
        """Return the change of the metric with the bounds of its interval."""
        change = self(table.counts(after)) - self(table.counts(before))
        return self._with_reason(table, float(change), table.n, *bounds)

    def _with_reason(
        self,
        table: AnswerTable,
        value: float,
        n: int,
        low: float | None,
        high: float | None,
    ) -> Estimate:
        """Return an estimate that names the groups and classes that it leaves out."""
        if self.needs_classes and NO_CLASS in table.targets:
            return undefined_estimate("withheld: some answers are no class", n)
        if self.over is None:
            return estimate_with_reason(value, n, low, high, None)

        # Groups without images, and for gaps the classes that therefore have no two groups.
        reason = missing_groups_note(table.sizes_by_name(self.over))
        if reason and self.is_gap and self.over is GroupBy.TARGET_AND_SENSITIVE:
            single_group_classes = _classes_without_two_groups(table)
            if single_group_classes:
                reason += "; classes left out, as fewer than two groups have them: "
                reason += list_names(single_group_classes)

        # Of a single group no gap is defined, whatever the metric needs besides.
        _, images_of_groups = table.correct_and_total(0, GroupBy.SENSITIVE)
        has_two_groups = np.count_nonzero(images_of_groups) >= 2
        needs = self.needs if has_two_groups else TWO_GROUPS
        return estimate_with_reason(value, n, low, high, reason, needs)


@dataclass(frozen=True)
class CustomMetric(MetricDefinition):
    """A metric with its own computations, such as one of scores beside the answers.

    Attributes:
        measure: computes it from the table, the run and the settings of intervals.
        change: the same for two runs.
        score: the field of `Scores` that it is computed from, None if from answers.
    """

    measure: Callable[[AnswerTable, int, Bootstrap], Estimate]
    change: Callable[[AnswerTable, int, int, Bootstrap], Estimate]
    score: Literal["entropy", "confidence"] | None = field(default=None, kw_only=True)

    def estimate(
        self, table: AnswerTable, run: int, bootstrap: Bootstrap | None
    ) -> Estimate:
        # `measure` always computes an interval.
        estimate = self.measure(table, run, bootstrap or Bootstrap())
        if bootstrap is None:
            return structs.replace(estimate, low=None, high=None)
        return estimate

    def difference(
        self, table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
    ) -> Estimate:
        return self.change(table, before, after, bootstrap)


def _classes_without_two_groups(table: AnswerTable) -> list[str]:
    """Return the classes that fewer than two groups have images of."""
    groups_with_class = (table.counts().sum(2) > 0).sum(0)
    return [
        str(target)
        for target, groups in zip(table.targets, groups_with_class, strict=True)
        if groups < 2 and target != NO_CLASS
    ]


def at_least_unclustered(
    table: AnswerTable, bounds_of: Callable[[AnswerTable], Bounds]
) -> Bounds:
    """Return the interval ``(low, high)`` of a table, no narrower than for independent images.

    Clusters only ever widen it: few of them may seem to agree by chance.
    """
    bounds = bounds_of(table)
    if table.clusters is None:
        return bounds
    return _spanning_bounds(bounds, bounds_of(table.without_clusters))


def _spanning_bounds(first: Bounds, second: Bounds) -> Bounds:
    """Return the shortest interval that has both in it; NaN if one of them is."""
    low = np.minimum(first[0], second[0])
    high = np.maximum(first[1], second[1])
    return float(low), float(high)


def estimate_with_reason(
    value: float,
    n: int,
    low: float | None,
    high: float | None,
    reason: str | None,
    needs: str = TWO_GROUPS,
) -> Estimate:
    """Return an estimate with the reason why it is not defined, or with what it leaves out."""
    if math.isnan(value):
        why_undefined = f"a gap needs {needs}"
        if reason:
            why_undefined += f"; {reason}"
        return undefined_estimate(why_undefined, n)
    return Estimate(value, n, low, high, reason)
