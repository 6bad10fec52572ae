"""What a metric is: its definition, how it is measured and compared, and how it is described."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from fair_tta.metrics.intervals._extremes import MaxMinInterval

ChangeInterval: TypeAlias = Callable[[AnswerTable, int, int, float], Bounds]
"""The table, the two runs and the level to the ends of the change; NaN where there is none."""

RunInterval: TypeAlias = Callable[[AnswerTable, int, float], tuple[Any, Any]]
"""The table, the run and the level to the ends of the interval."""

TWO_GROUPS = "two groups with images"


@dataclass(frozen=True)
class MetricDefinition(ABC):
    """A figure of a run and how it is described.

    Attributes:
        name: its key in results and in `audit.json`.
        title: its name in reports.
        better: 1 if larger is better, -1 if smaller is, 0 if neither.
        meaning: one or two sentences for readers of reports.
        is_compared: comparisons of audits have its difference.
        formula: the same in symbols, see `fair_tta.metrics.definitions`.
        no_disparity: the value that means that groups fare alike; empty if none does.
        notes: what else its documentation says.
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
        self, columns: AnswerTable, run: int, how: Bootstrap | None
    ) -> Estimate:
        """The figure of a run, with an interval on request."""

    @abstractmethod
    def difference(
        self, columns: AnswerTable, before: int, after: int, how: Bootstrap
    ) -> Estimate:
        """The figure of run `after` minus that of run `before`."""

    def differences(self, columns: AnswerTable, how: Bootstrap) -> list[Estimate]:
        """Of each run from the first, at levels that allow for all of them (Holm's procedure)."""

        def at(place: int, error: float) -> Estimate:
            return self.difference(columns, 0, place + 1, replace(how, level=1 - error))

        return step_down(
            len(columns.answers) - 1,
            lambda left: (1 - how.level) / len(left),
            at,
            lambda one: direction(one.low, one.high),
        )


@dataclass(frozen=True)
class RateMetric(MetricDefinition):
    """A metric that is a function of confusion counts. Define your own to compare runs by it.

    Attributes:
        rates: counts to rates, ``[..., groups, true, predicted] -> [..., *any shape]``.
        combine: rates to the metric, ``[..., *any shape] -> [...]``, or ``[..., targets]``.
        is_gap: `combine` is a seminorm: 0 if all groups are equal, and the gap of a sum is at most
            the sum of the gaps. Then intervals can be made that do not shun 0.
        change: the interval of its change from one run to another. Without it images are resampled,
            which is good for smooth functions of rates and too narrow for minima and gaps.
        interval: the interval of one run. Without it images are resampled.
        worst_of: it rests on the images of the worst of these groups; None: on all images.
        needs: what a gap needs in order to be defined.
        needs_classes: it is a mean over all answers that are given, so it is not defined if some
            are no class.
    """

    rates: Callable[[Floats], Floats]
    combine: Callable[[Floats], Floats]
    is_gap: bool = False
    change: ChangeInterval | None = None
    interval: RunInterval | None = field(default=None, kw_only=True)
    worst_of: GroupBy | None = field(default=None, kw_only=True)
    needs: str = field(default=TWO_GROUPS, kw_only=True)
    needs_classes: bool = field(default=False, kw_only=True)

    def __call__(self, counts: Any) -> Floats:
        """``[..., groups, true, predicted] -> [...]``."""
        return self.combine(self.rates(np.asarray(counts, np.float64)))

    def estimate(
        self, columns: AnswerTable, run: int, how: Bootstrap | None
    ) -> Estimate:
        counts, n = columns.counts(run), columns.n
        ends: Any = (None, None)
        if how is not None and (interval := self.interval) is not None:
            level = how.level
            ends = at_least_unclustered(
                columns, lambda some: interval(some, run, level)
            )
        elif how is not None:
            ends = resampled_bounds(self, counts, how)
        if self.worst_of is not None:
            at = columns.worst_cell(run, self.worst_of)
            n = int(columns.correct_and_total(run, self.worst_of)[1][at])
        return self._explained(columns, float(self(counts)), n, *ends)

    def difference(
        self, columns: AnswerTable, before: int, after: int, how: Bootstrap
    ) -> Estimate:
        size = np.size(self(columns.counts(before)))
        if size != 1:
            raise FairTTAError(
                f"`metric` should give one number (got {self.name!r}, which gives {size}).",
                argument="metric",
            )
        change = self.change
        if change is None:
            ends = resampled_change_bounds(self, columns, before, after, how)
        else:
            ends = at_least_unclustered(
                columns, lambda some: change(some, before, after, how.level)
            )
        return self._with_ends(columns, before, after, ends)

    def differences(self, columns: AnswerTable, how: Bootstrap) -> list[Estimate]:
        if not isinstance(change := self.change, MaxMinInterval):
            return super().differences(columns, how)
        ends = at_least_unclustered(
            columns, lambda some: np.transpose(change.joint_bounds(some, how.level))
        )
        pairs = enumerate(np.transpose(ends), 1)
        return [self._with_ends(columns, 0, i, pair) for i, pair in pairs]

    def _with_ends(
        self, columns: AnswerTable, before: int, after: int, ends: Bounds
    ) -> Estimate:
        """The change with these ends."""
        change = self(columns.counts(after)) - self(columns.counts(before))
        return self._explained(columns, float(change), columns.n, *ends)

    def _explained(
        self,
        columns: AnswerTable,
        value: float,
        n: int,
        low: float | None,
        high: float | None,
    ) -> Estimate:
        """With the groups and classes that it leaves out."""
        if self.needs_classes and NO_CLASS in columns.targets:
            return undefined_estimate("withheld: some answers are no class", n)
        if self.over is None:
            return with_reason(value, n, low, high, None)
        reason = missing_groups_note(columns.sizes_by_name(self.over))
        by_group = columns.counts().sum(2)
        if reason and self.is_gap and self.over is GroupBy.TARGET_AND_SENSITIVE:
            groups_with = (by_group > 0).sum(0)
            lost = [
                str(target)
                for target, groups in zip(columns.targets, groups_with, strict=True)
                if groups < 2 and target != NO_CLASS
            ]
            if lost:
                reason += (
                    "; classes left out, as fewer than two groups have them: "
                    + list_names(lost)
                )
        few = (by_group.sum(1) > 0).sum() < 2
        return with_reason(
            value, n, low, high, reason, TWO_GROUPS if few else self.needs
        )


@dataclass(frozen=True)
class CustomMetric(MetricDefinition):
    """A metric with computations of its own, such as one of what a run reports besides answers.

    Attributes:
        measure: columns, the run and how intervals are made to the figure.
        change: the same for two runs.
        score: which of `Scores` it is computed from, None if from answers.
    """

    measure: Callable[[AnswerTable, int, Bootstrap], Estimate]
    change: Callable[[AnswerTable, int, int, Bootstrap], Estimate]
    score: Literal["entropy", "confidence"] | None = field(default=None, kw_only=True)

    def estimate(
        self, columns: AnswerTable, run: int, how: Bootstrap | None
    ) -> Estimate:
        estimate = self.measure(columns, run, how or Bootstrap())
        if how is None:
            return structs.replace(estimate, low=None, high=None)
        return estimate

    def difference(
        self, columns: AnswerTable, before: int, after: int, how: Bootstrap
    ) -> Estimate:
        return self.change(columns, before, after, how)


def at_least_unclustered(
    columns: AnswerTable, ends: Callable[[AnswerTable], Any]
) -> Any:
    """Clusters do not make an interval narrower: few of them may seem to agree by chance."""
    found = ends(columns)
    if columns.clusters is None:
        return found
    other = ends(columns.without_clusters)
    return np.minimum(found[0], other[0]), np.maximum(found[1], other[1])


def with_reason(
    value: float,
    n: int,
    low: Any,
    high: Any,
    reason: str | None,
    needs: str = TWO_GROUPS,
) -> Estimate:
    """Return an estimate with the reason why it is not defined, or with what it leaves out."""
    if math.isnan(value):
        why = f"a gap needs {needs}"
        return undefined_estimate(f"{why}; {reason}" if reason else why, n)
    return Estimate(value, n, low, high, reason)
