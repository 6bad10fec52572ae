"""Every metric, defined once: audits, comparisons, reports and docs follow the table `METRICS`.

Most are functions of confusion counts ``[..., groups, true, predicted]`` with two halves: rates of
groups, and how they are combined. Leading dimensions are resamples. Rates of empty groups are NaN,
and minima and gaps are taken over the others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._bootstrap import Bootstrap, intervals, resampled_change
from fair_tta.metrics._calibration import BINS, calibration, mean
from fair_tta.metrics._columns import Columns, Floats
from fair_tta.metrics._estimate import Estimate, Over, left_out, listed, undefined
from fair_tta.metrics._intervals import clopper_pearson_ends, mean_rate_ends
from fair_tta.metrics._paired import (
    ChangeInterval,
    Ends,
    balanced_change,
    false_alarms,
    hits,
    lowest_change,
    mean_gap_change,
    overall_change,
    selections,
    shortfall_change,
)

RunInterval: TypeAlias = Callable[[Columns, int, float], Ends]
"""Columns, the run and the level to the ends of the interval."""

TWO_GROUPS = "two groups with images"
NOT_GIVEN = "not given: no scores were passed"


@dataclass(frozen=True)
class Figure(ABC):
    """A figure of a run and how it is described.

    Attributes:
        name: its key in results and in `audit.json`.
        title: its name in reports.
        better: 1 if larger is better, -1 if smaller is, 0 if neither.
        meaning: one or two sentences for readers of reports.
        since: the version that introduced it; audits of older versions do not have it.
    """

    name: str
    title: str = field(default="", kw_only=True)
    better: int = field(default=0, kw_only=True)
    meaning: str = field(default="", kw_only=True)
    since: str = field(default="0.3", kw_only=True)

    @abstractmethod
    def estimate(
        self, columns: Columns, run: int, how: Bootstrap | None, drawn: Any = None
    ) -> Estimate:
        """The figure of a run, with an interval on request; `drawn` has its ends if known."""

    @abstractmethod
    def difference(self, columns: Columns, before: int, after: int, how: Bootstrap) -> Estimate:
        """The figure of run `after` minus that of run `before`."""

    @property
    def is_compared(self) -> bool:
        """Whether it has a difference."""
        return True


@dataclass(frozen=True)
class Metric(Figure):
    """A metric that is a function of confusion counts. Define your own to compare runs by it.

    Attributes:
        rates: counts to rates, ``[..., groups, true, predicted] -> [..., *any shape]``.
        combine: rates to the metric, ``[..., *any shape] -> [...]``, or ``[..., targets]``.
        is_gap: `combine` is a seminorm: 0 if all groups are equal, and the gap of a sum is at most
            the sum of the gaps. Then intervals can be made that do not shun 0.
        change: the interval of its change from one run to another. Without it images are resampled,
            which is good for smooth functions of rates and too narrow for minima and gaps.
        interval: the interval of one run. Without it images are resampled.
        over: the groups that it is taken over, None if groups do not matter.
        worst_of: it rests on the images of the worst of these groups; None: on all images.
        needs: what a gap needs in order to be defined.
    """

    rates: Callable[[Floats], Floats]
    combine: Callable[[Floats], Floats]
    is_gap: bool = False
    change: ChangeInterval | None = None
    interval: RunInterval | None = field(default=None, kw_only=True)
    over: Over | None = field(default=Over.TARGET_AND_SENSITIVE, kw_only=True)
    worst_of: Over | None = field(default=None, kw_only=True)
    needs: str = field(default=TWO_GROUPS, kw_only=True)

    def __call__(self, counts: Any) -> Floats:
        """``[..., groups, true, predicted] -> [...]``."""
        return self.combine(self.rates(np.asarray(counts, np.float64)))

    def estimate(
        self, columns: Columns, run: int, how: Bootstrap | None, drawn: Any = None
    ) -> Estimate:
        counts, n = columns.counts(run), len(columns.truth)
        ends: Any = (None, None)
        if how is not None and self.interval is not None:
            ends = self.interval(columns, run, how.level)
        elif how is not None:
            ends = intervals([self], counts, how)[0] if drawn is None else drawn
        if self.worst_of is not None:
            at = columns.worst_cell(run, self.worst_of)
            n = int(columns.right_and_all(run, self.worst_of)[1][at])
        return self._explained(columns, float(self(counts)), n, *ends)

    def difference(self, columns: Columns, before: int, after: int, how: Bootstrap) -> Estimate:
        change = self(columns.counts(after)) - self(columns.counts(before))
        if np.ndim(change):
            raise FairTTAError(
                f"`metric` should give one number (got {self.name!r}, which gives "
                f"{np.size(change)})."
            )
        ends = (
            resampled_change(self, columns, before, after, how)
            if self.change is None
            else self.change(columns, before, after, how.level)
        )
        return self._explained(columns, float(change), len(columns.truth), *ends)

    def _explained(
        self, columns: Columns, value: float, n: int, low: float | None, high: float | None
    ) -> Estimate:
        """With the groups and classes that it leaves out."""
        if self.over is None:
            return with_reason(value, n, low, high, None)
        reason = left_out(columns.sizes(self.over))
        by_group = columns.counts().sum(2)
        if reason and self.is_gap and self.over is Over.TARGET_AND_SENSITIVE:
            groups_with = (by_group > 0).sum(0)
            lost = [str(t) for t, k in zip(columns.targets, groups_with, strict=True) if k < 2]
            if lost:
                reason += f"; classes left out, as fewer than two groups have them: {listed(lost)}"
        few = (by_group.sum(1) > 0).sum() < 2
        return with_reason(
            value, n, low, high, reason, "two groups with images" if few else self.needs
        )


@dataclass(frozen=True)
class ScoreMetric(Figure):
    """A metric of what a run reports besides its answers.

    Attributes:
        measure: columns, the run and how intervals are made to the figure.
        change: the same for two runs; without it runs are not compared by it.
    """

    measure: Callable[[Columns, int, Bootstrap], Estimate]
    change: Callable[[Columns, int, int, Bootstrap], Estimate] | None = None

    def estimate(
        self, columns: Columns, run: int, how: Bootstrap | None, drawn: Any = None
    ) -> Estimate:
        return self.measure(columns, run, how or Bootstrap())

    def difference(self, columns: Columns, before: int, after: int, how: Bootstrap) -> Estimate:
        assert self.change is not None
        return self.change(columns, before, after, how)

    @property
    def is_compared(self) -> bool:
        return self.change is not None


def estimates(
    figures: Sequence[Figure], columns: Columns, run: int, how: Bootstrap | None
) -> list[Estimate]:
    """Figures of one run; those without a closed form share their resamples."""
    resampled = [f for f in figures if isinstance(f, Metric) and f.interval is None]
    drawn: dict[str, Any] = {}
    if how is not None and resampled:
        ends = intervals(resampled, columns.counts(run), how)
        drawn = {metric.name: pair for metric, pair in zip(resampled, ends, strict=True)}
    return [figure.estimate(columns, run, how, drawn.get(figure.name)) for figure in figures]


def differences(
    figures: Sequence[Figure], columns: Columns, before: int, after: int, how: Bootstrap
) -> list[Estimate]:
    """Figures of run `after` minus those of run `before`."""
    return [figure.difference(columns, before, after, how) for figure in figures]


def with_reason(
    value: float,
    n: int,
    low: Any,
    high: Any,
    reason: str | None,
    needs: str = TWO_GROUPS,
) -> Estimate:
    """An estimate that says why it is not defined, or what it leaves out."""
    if math.isnan(value):
        why = f"a gap needs {needs}"
        return undefined(f"{why}; {reason}" if reason else why, n)
    ends = [None if end is None or np.isnan(end) else float(end) for end in (low, high)]
    return Estimate(value, n, ends[0], ends[1], reason)


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


def false_positive(counts: Floats) -> Floats:
    """How often images of other classes get this answer: ``[..., groups, targets]``."""
    true, answered = counts.sum(-1), counts.sum(-2)
    return ratio(answered - _diagonal(counts), true.sum(-1, keepdims=True) - true)


def selection(counts: Floats) -> Floats:
    """How often each answer is given: ``[..., groups, targets]``."""
    answered = counts.sum(-2)
    return ratio(answered, answered.sum(-1, keepdims=True))


def gap(rates: Floats) -> Floats:
    """Largest minus smallest over groups, ``[..., groups, targets] -> [..., targets]``.

    NaN where fewer than two groups have a rate.
    """
    spread: Floats = np.fmax.reduce(rates, -2) - np.fmin.reduce(rates, -2)
    return np.where((~np.isnan(rates)).sum(-2) < 2, np.nan, spread)


def mean_of_defined(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN, NaN if nothing is."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(-1), known.sum(-1).astype(np.float64))


def _diagonal(counts: Floats) -> Floats:
    diagonal: Floats = np.einsum("...ii->...i", counts)
    return diagonal


def _odds(counts: Floats) -> Floats:
    """``[..., 2, groups, targets]``."""
    return np.stack([true_positive(counts), false_positive(counts)], -3)


def _accuracy_and(rates: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    def both(counts: Floats) -> Floats:
        first = overall(counts)[..., None]
        return np.concatenate([first, rates(counts).reshape(*first.shape[:-1], -1)], -1)

    return both


def _worst(rates: Floats) -> Floats:
    lowest: Floats = np.fmin.reduce(rates, -1)
    return lowest


def _shortfall(rates: Floats) -> Floats:
    return np.maximum(0.0, rates[..., 0] - _worst(rates[..., 1:]))


def _flat(counts: Floats) -> Floats:
    rates = true_positive(counts)
    return rates.reshape(*rates.shape[:-2], -1)


def _mean_gap(rates: Floats) -> Floats:
    return mean_of_defined(gap(rates))


def _balanced_ends(columns: Columns, run: int, level: float) -> Ends:
    right, n = _of_present(columns, run, Over.TARGET_AND_SENSITIVE)
    low, high = mean_rate_ends(right, n, level)
    return max(0.0, low), min(1.0, high)


def _lowest_ends(over: Over) -> RunInterval:
    """The lowest ends of exact intervals that hold together (Bonferroni)."""

    def ends(columns: Columns, run: int, level: float) -> Ends:
        right, n = _of_present(columns, run, over)
        low, high = clopper_pearson_ends(right, n, 1 - (1 - level) / len(n))
        return float(low.min()), float(high.min())

    return ends


def _shortfall_ends(over: Over) -> RunInterval:
    def ends(columns: Columns, run: int, level: float) -> Ends:
        low, high = _lowest_ends(over)(columns, run, level)
        accuracy = float(overall(columns.counts(run).astype(np.float64)))
        return max(0.0, accuracy - high), max(0.0, accuracy - low)

    return ends


def _of_present(columns: Columns, run: int, over: Over) -> tuple[Floats, Floats]:
    """Right answers and images of the groups that have images."""
    right, n = columns.right_and_all(run, over)
    return right[n > 0].astype(np.float64), n[n > 0].astype(np.float64)


def mean_change(less: Floats | None, more: Floats | None, level: float) -> Estimate:
    """Mean of ``more - less``, image by image."""
    if less is None or more is None:
        return undefined(NOT_GIVEN)
    return mean(more - less, level, least=-1.0)


def confidence_of(entropy: Floats | None, level: float) -> Estimate:
    """ATC, if entropies are known."""
    return undefined(NOT_GIVEN) if entropy is None else mean(1 - entropy, level)


def calibration_of(
    columns: Columns, run: int, how: Bootstrap, group: int | None = None
) -> Estimate:
    """The calibration error of all images or of a group, if confidences are known."""
    confidence = columns.scores[run].confidence
    if confidence is None:
        return undefined(NOT_GIVEN)
    some = slice(None) if group is None else columns.group == group
    right = columns.truth[some] == columns.answers[run][some]
    return calibration(right, confidence[some], BINS, how)


_PAIRS, _VALUES = Over.TARGET_AND_SENSITIVE, Over.SENSITIVE

ACCURACY = Metric(
    "accuracy",
    overall,
    lambda rates: rates,
    change=overall_change,
    over=None,
    title="Accuracy",
    better=1,
    meaning="Share of right answers.",
    since="0.1",
)
BALANCED_ACCURACY = Metric(
    "balanced_accuracy",
    _flat,
    mean_of_defined,
    change=balanced_change,
    interval=_balanced_ends,
    title="Balanced accuracy (class / group)",
    better=1,
    meaning="Mean accuracy of all groups, a group being the images of one class and one sensitive "
    "value: a rare group counts as much as a frequent one. Equal to worst-group accuracy if all "
    "groups fare alike.",
    since="0.2",
)
WORST_GROUP_ACCURACY = Metric(
    "worst_group_accuracy",
    _flat,
    _worst,
    change=lowest_change(_PAIRS),
    interval=_lowest_ends(_PAIRS),
    worst_of=_PAIRS,
    title="Worst-group accuracy (class / group)",
    better=1,
    meaning="Accuracy of the worst group, a group being the images of one class and one sensitive "
    "value. Equal to accuracy if all groups fare alike.",
    since="0.1",
)
WORST_GROUP_ACCURACY_S = Metric(
    "worst_group_accuracy_s",
    by_group,
    _worst,
    change=lowest_change(_VALUES),
    interval=_lowest_ends(_VALUES),
    over=_VALUES,
    worst_of=_VALUES,
    title="Worst-group accuracy (group)",
    better=1,
    meaning="The same with groups of one sensitive value, whatever the class.",
    since="0.1",
)
BIAS = Metric(
    "bias",
    _accuracy_and(true_positive),
    _shortfall,
    change=shortfall_change(_PAIRS),
    interval=_shortfall_ends(_PAIRS),
    worst_of=_PAIRS,
    title="Gap (class / group)",
    better=-1,
    meaning="Accuracy minus worst-group accuracy; the literature calls it bias. 0 means no "
    "disparity.",
    since="0.1",
)
BIAS_S = Metric(
    "bias_s",
    _accuracy_and(by_group),
    _shortfall,
    change=shortfall_change(_VALUES),
    interval=_shortfall_ends(_VALUES),
    over=_VALUES,
    worst_of=_VALUES,
    title="Gap (group)",
    better=-1,
    meaning="The same with groups of one sensitive value. 0: no disparity.",
    since="0.1",
)
EQUALIZED_ODDS = Metric(
    "equalized_odds_difference",
    _odds,
    lambda rates: mean_of_defined(gap(rates).max(-2)),  # NaN wins, so a class needs both gaps
    is_gap=True,
    change=mean_gap_change(hits, false_alarms),
    needs="two groups with images of one class, and two with images of others",
    title="Equalized odds difference",
    better=-1,
    meaning="For each class the larger of the gaps between groups in true and in false positive "
    "rate; then the mean over classes. 0 means no disparity.",
    since="0.1",
)
EQUAL_OPPORTUNITY = Metric(
    "equal_opportunity_difference",
    true_positive,
    _mean_gap,
    is_gap=True,
    change=mean_gap_change(hits),
    needs="two groups with images of one class",
    title="Equal opportunity difference",
    better=-1,
    meaning="Gap between groups in true positive rate, mean over classes. 0 means no disparity.",
    since="0.1",
)
DEMOGRAPHIC_PARITY = Metric(
    "demographic_parity_difference",
    selection,
    _mean_gap,
    is_gap=True,
    change=mean_gap_change(selections),
    over=_VALUES,
    title="Demographic parity difference",
    better=-1,
    meaning="Gap between groups in how often each answer is given, mean over classes. 0 means no "
    "disparity, which is not to be expected where classes are not equally frequent in groups.",
    since="0.1",
)
AVERAGE_TARGET_CONFIDENCE = ScoreMetric(
    "average_target_confidence",
    lambda columns, run, how: confidence_of(columns.scores[run].entropy, how.level),
    lambda columns, before, after, how: mean_change(
        columns.scores[after].entropy, columns.scores[before].entropy, how.level
    ),
    title="Average target confidence (ATC)",
    meaning="One minus the normalised entropy of the answers, on average: 0 undecided, 100 "
    "certain. Certain is not right.",
    since="0.1",
)
EXPECTED_CALIBRATION_ERROR = ScoreMetric(
    "expected_calibration_error",
    calibration_of,
    title="Expected calibration error",
    better=-1,
    meaning="How far confidence is from accuracy, on average. 0 means that answers given with 80 % "
    "are right in 80 %. In 15 overlapping bins; on few images it is too large.",
    since="0.1",
)

METRICS: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        ACCURACY,
        BALANCED_ACCURACY,
        WORST_GROUP_ACCURACY,
        WORST_GROUP_ACCURACY_S,
        BIAS,
        BIAS_S,
        EQUALIZED_ODDS,
        EQUAL_OPPORTUNITY,
        DEMOGRAPHIC_PARITY,
        AVERAGE_TARGET_CONFIDENCE,
        EXPECTED_CALIBRATION_ERROR,
    )
}
"""The figures of a run, in the order of audits and reports. A new one is one more entry."""

TRUE_POSITIVE_GAPS = Metric("true_positive_rate_gaps", true_positive, gap, is_gap=True)
FALSE_POSITIVE_GAPS = Metric("false_positive_rate_gaps", false_positive, gap, is_gap=True)
SELECTION_GAPS = Metric("selection_rate_gaps", selection, gap, is_gap=True)
